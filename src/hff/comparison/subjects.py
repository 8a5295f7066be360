"""Which method trains which network in a comparison, and which cannot."""

from collections.abc import Iterable
from dataclasses import dataclass

from hff.comparison.terms import Terms
from hff.errors import UserError
from hff.experiment import Choice, Experiment, create_method
from hff.methods import methods
from hff.methods.method import Stage
from hff.networks import network
from hff.training.cost import trained_stages

MLP_WIDTHS = (500, 500, 500)
"""A third of the paper's units or less: within a minute, a method sees the data more than once."""
CNN_CHANNELS = (32, 64)
"""The paper's for MNIST, but for the rounding that lets groups of channels stand for classes."""


@dataclass(frozen=True)
class Subject:
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
        return methods[self.method].facts.title


def default_networks(classes: int) -> tuple[Choice, Choice]:
    """The MLP, and the CNN for rules that take no MLP; its channels are multiples of the classes."""
    channels = tuple(max(1, round(width / classes)) * classes for width in CNN_CHANNELS)
    return Choice("mlp", {"widths": MLP_WIDTHS}), Choice("cnn", {"channels": channels})


def find_subjects(
    terms: Terms, names: Iterable[str], in_shape: tuple[int, ...], classes: int
) -> tuple[dict[str, Subject], dict[str, str]]:
    """The subjects by method, and why each other method is not one."""
    networks = default_networks(classes) if terms.network is None else (terms.network,)
    subjects: dict[str, Subject] = {}
    refused: dict[str, str] = {}
    for name in names:
        for choice in networks:
            try:
                subjects[name] = _subject(terms.experiment(name, choice), in_shape, classes)
                refused.pop(name, None)
                break
            except UserError as error:
                refused[name] = str(error)
    return subjects, refused


def _subject(experiment: Experiment, in_shape: tuple[int, ...], classes: int) -> Subject:
    method = create_method(experiment, in_shape, classes)
    table = network(experiment.network.name, in_shape, classes, **experiment.network.options)
    return Subject(
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
