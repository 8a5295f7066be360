"""Which method trains which network in a comparison, and which cannot."""

from collections.abc import Iterable
from dataclasses import dataclass

from hff.bench.cost import trained_stages
from hff.comparison.settings import ComparisonSettings
from hff.errors import UserError
from hff.experiment import Experiment, Selection
from hff.methods import methods
from hff.methods.method import Stage
from hff.networks import create_network

MLP_WIDTHS = (500, 500, 500)
"""A third of the paper's units or less: within a minute, a method sees the data more than once."""
CNN_CHANNELS = (32, 64)
"""The paper's for MNIST, but for the rounding that lets groups of channels stand for classes."""


@dataclass(frozen=True)
class Entrant:
    """A method on its network, ready to be trained."""

    experiment: Experiment
    network: str
    """In words, such as "mlp 3x500" or "cnn 30-60"."""
    parameters: int
    passes: int
    stages: tuple[Stage, ...]
    """Those that last."""

    @property
    def method(self) -> str:
        return self.experiment.method.name

    @property
    def title(self) -> str:
        return methods[self.method].info.title


def default_networks(classes: int) -> tuple[Selection, Selection]:
    """The MLP, and the CNN for rules that take no MLP; its channels are multiples of the classes."""
    channels = tuple(max(1, round(width / classes)) * classes for width in CNN_CHANNELS)
    return Selection("mlp", {"widths": MLP_WIDTHS}), Selection("cnn", {"channels": channels})


def find_entrants(
    terms: ComparisonSettings, names: Iterable[str], in_shape: tuple[int, ...], classes: int
) -> tuple[dict[str, Entrant], dict[str, str]]:
    """The entrants by method, and why each other method is not one."""
    networks = default_networks(classes) if terms.network is None else (terms.network,)
    entrants: dict[str, Entrant] = {}
    unsupported: dict[str, str] = {}
    for name in names:
        for choice in networks:
            try:
                entrants[name] = _entrant(terms.experiment(name, choice), in_shape, classes)
                unsupported.pop(name, None)
                break
            except UserError as error:
                unsupported[name] = str(error)
    return entrants, unsupported


def _entrant(experiment: Experiment, in_shape: tuple[int, ...], classes: int) -> Entrant:
    method = experiment.create_method(in_shape, classes)
    table = create_network(experiment.network.name, in_shape, classes, **experiment.network.options)
    return Entrant(
        experiment=experiment,
        network=f"{table.name} {_in_words([row.width for row in table.rows])}",
        parameters=sum(parameter.numel() for parameter in method.parameters()),
        passes=method.passes,
        stages=tuple(trained_stages(method, experiment.training)),
    )


def _in_words(widths: list[int]) -> str:
    """The widths of the layers in a few characters."""
    if len(set(widths)) == 1:
        return f"{len(widths)}x{widths[0]}"
    return "-".join(map(str, widths)) if len(widths) < 6 else f"{len(widths)} layers"
