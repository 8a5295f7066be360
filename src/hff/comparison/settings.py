"""What all methods of a comparison have in common."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from hff.config import shown, to_builtin
from hff.errors import UserError
from hff.experiment import Experiment, Selection
from hff.methods import methods

SHARES = 100
"""Epochs of a training by the clock: how its parts share the time is as fine as that."""


@dataclass(frozen=True)
class ComparisonSettings:
    """The terms of a comparison; the optimiser is Adam and its rate falls as a half cosine.

    Args:
        data: the data set with its options.
        network: what all methods train; None for an MLP, or a small CNN where a rule takes no MLP.
        seconds: training seconds of each method; None where epochs count.
        epochs: epochs of each method; None where seconds count.
        batch_size: samples in a mini-batch.
        learning_rate: that of all methods; None for the one that each declares.
        seed: what all randomness hangs on.
    """

    data: Selection
    network: Selection | None = None
    seconds: float | None = None
    epochs: int | None = None
    batch_size: int = 128
    learning_rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.epochs is None):
            raise UserError("A comparison needs a budget: either seconds or epochs.")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """The inverse of `to_mapping`."""
        parts = {part: mapping[part] and Selection(**mapping[part]) for part in ("data", "network")}
        return cls(**{**mapping, **parts})

    def to_mapping(self) -> dict[str, Any]:
        """Plain lists, numbers and texts."""
        mapping: dict[str, Any] = to_builtin(asdict(self))
        return mapping

    @property
    def budget(self) -> str:
        """What each method gets, in a word."""
        return f"{self.seconds:g}s" if self.seconds is not None else f"{self.epochs}epochs"

    def experiment(self, method: str, network: Selection) -> Experiment:
        """The training of one method."""
        return Experiment.from_mapping(
            {
                "method": method,
                "network": {"name": network.name, **network.options},
                "data": {"name": self.data.name, **self.data.options},
                "epochs": SHARES if self.epochs is None else self.epochs,
                "seconds": self.seconds,
                "batch_size": self.batch_size,
                "learning_rate": self.learning_rate or methods[method].info.learning_rate,
                "optimizer": "adam",
                "lr_schedule": "cosine",
                "seed": self.seed,
            }
        )

    def difference(self, other: "ComparisonSettings") -> str | None:
        """The first thing in which two sets of terms differ, in words; None where they are the same."""
        mine, theirs = _flat(self.to_mapping()), _flat(other.to_mapping())
        for key in {**mine, **theirs}:
            if mine.get(key) != theirs.get(key):
                return f"{key} {shown(mine.get(key))}, not {shown(theirs.get(key))}"
        return None


def _flat(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """One level: the name of a part under the part's own, its options behind a dot."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            flat |= {key: value["name"], **{f"{key}.{name}": each for name, each in value["options"].items()}}
        else:
            flat[key] = value
    return flat
