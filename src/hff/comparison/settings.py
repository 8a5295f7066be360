"""The settings that all methods of a comparison share."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from hff.config import shown, to_builtin
from hff.data import DataSet
from hff.errors import UserError
from hff.experiment import Experiment, Selection, select
from hff.files import is_positive, is_size, optional
from hff.methods import methods
from hff.training.advice import suitable_batch_size

SHARES = 100
"""Epochs of a training with a time budget. They only determine how its stages share the time."""
PARTS = ("data", "network")
"""The settings that are selections."""
_SELECTION = {"name": str, "options": dict}
SCHEMA = {
    "data": _SELECTION,
    "network": optional(_SELECTION),
    "seconds?": optional(is_positive),
    "epochs?": optional(is_size),
    "batch_size?": is_size,
    "learning_rate?": optional(is_positive),
    "seed?": int,
}
"""What saved settings must contain."""


@dataclass(frozen=True)
class ComparisonSettings:
    """The settings of a comparison. All methods use Adam with a learning rate that follows a half cosine.

    Args:
        data: the data set with its options.
        network: the network of all methods; None for an MLP, or a small CNN if a method does not
            support MLPs.
        seconds: training time of each method; None if `epochs` is given.
        epochs: epochs of each method; None if `seconds` is given.
        batch_size: samples in a mini-batch; None to choose it from the size of the training split.
        learning_rate: the learning rate of all methods; None for the one that each method declares.
        seed: seed of all random numbers.
    """

    data: Selection
    network: Selection | None = None
    seconds: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.epochs is None):
            raise UserError("A comparison needs a budget: either seconds or epochs.")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """The inverse of `to_mapping`. Missing options take their defaults."""
        parts = {part: mapping[part] and _resolved(part, Selection(**mapping[part])) for part in PARTS}
        return cls(**{**mapping, **parts})

    def to_mapping(self) -> dict[str, Any]:
        """The settings as lists, numbers and text."""
        mapping: dict[str, Any] = to_builtin(asdict(self))
        return mapping

    @property
    def budget(self) -> str:
        """The budget of each method, such as "60s" or "5epochs"."""
        return f"{self.seconds:g}s" if self.seconds is not None else f"{self.epochs}epochs"

    def for_data(self, data: DataSet) -> "ComparisonSettings":
        """The same settings, with a batch size that suits the data if none is given."""
        if self.batch_size is not None:
            return self
        return replace(self, batch_size=suitable_batch_size(len(data.train)))

    def experiment(self, method: str, network: Selection) -> Experiment:
        """The training of one method."""
        return Experiment.from_mapping(
            {
                "method": method,
                "network": {"name": network.name, **network.options},
                "data": {"name": self.data.name, **self.data.options},
                "epochs": SHARES if self.epochs is None else self.epochs,
                "seconds": self.seconds,
                **({} if self.batch_size is None else {"batch_size": self.batch_size}),
                "learning_rate": self.learning_rate or methods.find(method).info.learning_rate,
                "optimizer": "adam",
                "lr_schedule": "cosine",
                "seed": self.seed,
            }
        )

    def difference(self, other: "ComparisonSettings") -> str | None:
        """The first setting that differs, in words; None if all are equal.

        A batch size that is not given is chosen from the data, so it does not differ.
        """
        mine, theirs = self._flat(), other._flat()
        if None in (self.batch_size, other.batch_size):
            del mine["batch_size"], theirs["batch_size"]
        for key in {**mine, **theirs}:
            if mine.get(key) != theirs.get(key):
                return f"{key} {shown(mine.get(key))}, not {shown(theirs.get(key))}"
        return None

    def _flat(self) -> dict[str, Any]:
        """All settings with keys such as `network` and `network.widths`."""
        flat: dict[str, Any] = {}
        for key, value in to_builtin(vars(self)).items():
            if isinstance(value, Selection):
                options = to_builtin(_resolved(key, value).options)
                flat |= {key: value.name, **{f"{key}.{name}": option for name, option in options.items()}}
            else:
                flat[key] = value
        return flat


def _resolved(part: str, selected: Selection) -> Selection:
    """A selection with the values of all options."""
    return select(part, {"name": selected.name, **selected.options})
