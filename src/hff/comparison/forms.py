"""The form of network that each method gets in a comparison."""

import statistics
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from hff.config import shown
from hff.data import Preprocessing
from hff.experiment import PARTS, Selection
from hff.methods import Form

BARE = "bare"
"""The form of a network without any options of the method."""


@dataclass(frozen=True)
class Formed:
    """A network in the form that a method wants."""

    network: Selection
    method_options: dict[str, Any] = field(default_factory=dict)
    """Options of the method that belong to the form."""
    text: str = BARE
    """The options that the form sets, such as "activation tanh, bias false"."""


def formed(form: Form, network: Selection, kept: Collection[str], inputs: Preprocessing) -> Formed:
    """The network in a form.

    Options that the network does not have are left out, and so is a norm whose place the network cannot set.

    Args:
        form: the form that the method declares.
        network: the network of the comparison.
        kept: options of the network that the form must not change, because the user has set them.
        inputs: the standardization of the inputs.
    """
    known = {each.name for each in PARTS["network"].fields(network.name)}
    wanted = dict(form.network)
    if "norm_at" in wanted and "norm_at" not in known:
        wanted.pop("norm", None)
    options = {name: value for name, value in wanted.items() if name in known and name not in kept}
    method_options = dict(form.method)
    if form.raw_inputs is not None and len(inputs.size) == 3:
        scale, offset = form.raw_inputs
        # One factor for all channels: their standard deviations differ by a few percent in natural images.
        method_options |= {
            scale: round(statistics.fmean(inputs.std), 4),
            offset: round(statistics.fmean(inputs.mean), 4),
        }
    changes = {**options, **method_options}
    text = ", ".join(f"{name} {shown(value)}" for name, value in changes.items())
    return Formed(Selection(network.name, {**network.options, **options}), method_options, text or BARE)


def given_options(network: Selection) -> set[str]:
    """The options of a network that differ from its defaults."""
    defaults = {each.name: each.default for each in PARTS["network"].fields(network.name)}
    return {name for name, value in network.options.items() if value != defaults[name]}
