"""Entrants of a comparison: which method with which options trains which network."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hff.bench.cost import trained_stages
from hff.comparison.forms import formed, given_options
from hff.comparison.settings import ComparisonSettings
from hff.config import parse_options, shown
from hff.data import DataSet
from hff.errors import UserError
from hff.experiment import Experiment, Selection
from hff.methods import Group, methods
from hff.methods.method import Stage
from hff.networks import create_network

MLP_WIDTHS = (500, 500, 500)
"""At most a third of the paper's units, so that a method sees the data more than once within a minute."""
CNN_CHANNELS = (32, 64)
"""The paper's channels for MNIST, before they are rounded to multiples of the classes."""


@dataclass(frozen=True)
class Entry:
    """A method with the options that distinguish it from other entrants of the same method."""

    method: str
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name, such as "hff" or "hff:temperature=5:lse=mean". The items of a list are joined by "+"."""
        parts = [f"{option}={shown(value).replace(',', '+')}" for option, value in self.options.items()]
        return ":".join([self.method, *parts])

    @property
    def folder(self) -> str:
        """The name of the folder of the entrant."""
        return re.sub(r"[^\w.=+-]", "-", self.name)


def entry_of(given: "str | Selection | Entry") -> Entry:
    """An entry from its name, or from a method and its options."""
    if isinstance(given, str):
        method, *parts = (part.strip() for part in given.split(":"))
        options: dict[str, Any] = {}
        for part in parts:
            option, equals, value = part.partition("=")
            if not equals or not option:
                raise UserError(
                    f"Options of a method are given as in hff:temperature=5:lse=mean, not as {given!r}."
                )
            options[option.strip().replace("-", "_")] = value.strip().replace("+", ",")
    else:
        method, options = given.method if isinstance(given, Entry) else given.name, dict(given.options)
    found = methods.find(method)
    return Entry(method, parse_options(found, options, f"method {method!r}"))


def entries_of(given: "Sequence[str | Selection] | None") -> dict[str, Entry]:
    """The entries by name; None stands for all registered methods with their default options."""
    found = [entry_of(each) for each in (sorted(methods.working()) if given is None else given)]
    entries = {entry.name: entry for entry in found}
    if not entries:
        raise UserError("There are no methods to compare; name at least one.")
    folders: dict[str, str] = {}
    for name, entry in entries.items():
        # Some file systems do not distinguish upper from lower case.
        other = folders.setdefault(entry.folder.lower(), name)
        if other != name:
            raise UserError(f"{other!r} and {name!r} would share the folder {entry.folder}; leave one out.")
    return entries


@dataclass(frozen=True)
class Entrant:
    """An entry with the network that it trains."""

    entry: Entry
    experiment: Experiment
    """The training with the first seed and the declared learning rate."""
    network: str
    """A short description, such as "mlp 3x500" or "cnn 30-60"."""
    form: str
    """The options that the form of the network sets, such as "activation tanh"."""
    group: Group
    parameters: int
    """Parameters that training has."""
    prediction_parameters: int
    """Parameters that a prediction uses."""
    passes: int
    """Forward passes per prediction."""
    as_published: bool
    """Whether gradients reach as far as in the published rule, so that its claims apply."""
    stages: tuple[Stage, ...]
    """The stages that last at least an epoch."""

    @property
    def name(self) -> str:
        """The name of the entrant, which is the name of the method if it has no options."""
        return self.entry.name

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.entry.method

    @property
    def title(self) -> str:
        """The title of the method."""
        return methods.find(self.method).info.title


def default_networks(classes: int) -> tuple[Selection, Selection]:
    """An MLP, and a CNN for methods that do not support MLPs; its channels are multiples of the classes."""
    channels = tuple(max(1, round(width / classes)) * classes for width in CNN_CHANNELS)
    return Selection("mlp", {"widths": MLP_WIDTHS}), Selection("cnn", {"channels": channels})


def find_entrants(
    settings: ComparisonSettings, entries: Iterable[Entry], data: DataSet
) -> tuple[dict[str, Entrant], dict[str, str]]:
    """The entrants by name, and for each other entry the reason why it is unsupported."""
    networks = default_networks(len(data.classes)) if settings.network is None else (settings.network,)
    entrants: dict[str, Entrant] = {}
    unsupported: dict[str, str] = {}
    for entry in entries:
        for network in networks:
            try:
                entrants[entry.name] = _entrant(settings, entry, network, data)
                unsupported.pop(entry.name, None)
                break
            except UserError as error:
                unsupported[entry.name] = str(error)
    return entrants, unsupported


def _entrant(settings: ComparisonSettings, entry: Entry, selected: Selection, data: DataSet) -> Entrant:
    form_text, options = "bare", dict(entry.options)
    if not settings.same_network:
        kept = set() if settings.network is None else given_options(selected)
        form = methods.find(entry.method).info.form
        found = formed(form, selected, kept, data.preprocessing)
        # Options of the entry come first: they are what it is entered for.
        selected, options, form_text = found.network, {**found.method_options, **options}, found.text
    experiment = settings.experiment(Selection(entry.method, options), selected)
    method = experiment.create_method(data.in_shape, len(data.classes))
    chosen = experiment.network
    network = create_network(chosen.name, data.in_shape, len(data.classes), **chosen.options)
    return Entrant(
        entry=entry,
        experiment=experiment,
        network=f"{network.name} {_describe([row.width for row in network.rows])}",
        form=form_text,
        group=method.group,
        parameters=sum(parameter.numel() for parameter in method.parameters()),
        prediction_parameters=method.prediction_parameters,
        passes=method.passes,
        as_published=method.gradient_reach == method.info.gradient_reach,
        stages=tuple(trained_stages(method, experiment.training)),
    )


def _describe(widths: list[int]) -> str:
    """A short description of the widths of the layers."""
    if len(set(widths)) == 1:
        return f"{len(widths)}x{widths[0]}" if len(widths) > 1 else str(widths[0])
    return "-".join(map(str, widths)) if len(widths) < 6 else f"{len(widths)} layers"
