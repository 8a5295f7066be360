"""Entrants of a comparison: which method trains which network."""

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
"""At most a third of the paper's units, so that a method sees the data more than once within a minute."""
CNN_CHANNELS = (32, 64)
"""The paper's channels for MNIST, before they are rounded to multiples of the classes."""


@dataclass(frozen=True)
class Entrant:
    """A method with the network that it trains."""

    experiment: Experiment
    network: str
    """A short description, such as "mlp 3x500" or "cnn 30-60"."""
    parameters: int
    passes: int
    """Forward passes per prediction."""
    stages: tuple[Stage, ...]
    """The stages that last at least an epoch."""

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.experiment.method.name

    @property
    def title(self) -> str:
        """The title of the method."""
        return methods.find(self.method).info.title


def default_networks(classes: int) -> tuple[Selection, Selection]:
    """An MLP, and a CNN for methods that do not support MLPs; its channels are multiples of the classes."""
    channels = tuple(max(1, round(width / classes)) * classes for width in CNN_CHANNELS)
    return Selection("mlp", {"widths": MLP_WIDTHS}), Selection("cnn", {"channels": channels})


def find_entrants(
    settings: ComparisonSettings, names: Iterable[str], in_shape: tuple[int, ...], classes: int
) -> tuple[dict[str, Entrant], dict[str, str]]:
    """The entrants by method, and for each other method the reason why it is unsupported."""
    networks = default_networks(classes) if settings.network is None else (settings.network,)
    entrants: dict[str, Entrant] = {}
    unsupported: dict[str, str] = {}
    for name in names:
        for network in networks:
            try:
                entrants[name] = _entrant(settings.experiment(name, network), in_shape, classes)
                unsupported.pop(name, None)
                break
            except UserError as error:
                unsupported[name] = str(error)
    return entrants, unsupported


def _entrant(experiment: Experiment, in_shape: tuple[int, ...], classes: int) -> Entrant:
    method = experiment.create_method(in_shape, classes)
    network = create_network(experiment.network.name, in_shape, classes, **experiment.network.options)
    return Entrant(
        experiment=experiment,
        network=f"{network.name} {_describe([row.width for row in network.rows])}",
        parameters=sum(parameter.numel() for parameter in method.parameters()),
        passes=method.passes,
        stages=tuple(trained_stages(method, experiment.training)),
    )


def _describe(widths: list[int]) -> str:
    """A short description of the widths of the layers."""
    if len(set(widths)) == 1:
        return f"{len(widths)}x{widths[0]}"
    return "-".join(map(str, widths)) if len(widths) < 6 else f"{len(widths)} layers"
