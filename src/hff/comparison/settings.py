"""The settings that all methods of a comparison share."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from hff.comparison.rates import Rates, checked_rates
from hff.config import shown, to_builtin
from hff.data import DataSet
from hff.errors import UserError, require
from hff.experiment import Experiment, Selection, select
from hff.files import is_positive, is_size, optional
from hff.methods import methods
from hff.training.advice import suitable_batch_size

PROTOCOL = 1
"""The version of docs/protocol.md that comparisons follow. Results of different versions are not mixed."""
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
    "rates?": (str, list),
    "same_network?": bool,
    "seeds?": is_size,
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
        seconds: training time of each method; None for no limit.
        epochs: epochs of each method; None for no limit. If both are given, a training ends at the first.
        batch_size: samples in a mini-batch; None to choose it from the size of the training split.
        learning_rate: the learning rate of all methods; None for the one that each method declares.
        rates: "declared" for the learning rate that each method declares, "search" to search for the best
            one by short trials, or the rates to try.
        same_network: whether all methods get the same bare network. Otherwise, each method gets the network
            in the form that it declares.
        seeds: number of seeds that each method is trained with.
        seed: the first seed; the others follow it.
    """

    data: Selection
    network: Selection | None = None
    seconds: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    rates: Rates = "declared"
    same_network: bool = False
    seeds: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seconds is None and self.epochs is None:
            raise UserError("A comparison needs a budget: seconds, epochs, or both.")
        require(self.seeds >= 1, f"seeds must be at least 1, not {self.seeds}.")
        object.__setattr__(self, "rates", checked_rates(self.rates))
        if self.learning_rate is not None and self.rates != "declared":
            raise UserError("Give either a learning rate for all methods, or rates to try, not both.")

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
        """The budget of each method, such as "60s", "5epochs" or "60s-5epochs"."""
        seconds = [] if self.seconds is None else [f"{self.seconds:g}s"]
        return "-".join(seconds + ([] if self.epochs is None else [f"{self.epochs}epochs"]))

    @property
    def all_seeds(self) -> range:
        """The seeds that each method is trained with."""
        return range(self.seed, self.seed + self.seeds)

    def for_data(self, data: DataSet) -> "ComparisonSettings":
        """The same settings, with a batch size that suits the data if none is given."""
        if self.batch_size is not None:
            return self
        return replace(self, batch_size=suitable_batch_size(len(data.train)))

    def experiment(self, method: Selection, network: Selection) -> Experiment:
        """The training of a method with some of its options, with the first seed and the declared rate."""
        return Experiment.from_mapping(
            {
                "method": {"name": method.name, **method.options},
                "network": {"name": network.name, **network.options},
                "data": {"name": self.data.name, **self.data.options},
                "epochs": SHARES if self.epochs is None else self.epochs,
                "seconds": self.seconds,
                "stop_at": "seconds" if None in (self.seconds, self.epochs) else "either",
                **({} if self.batch_size is None else {"batch_size": self.batch_size}),
                "learning_rate": self.learning_rate or methods.find(method.name).info.learning_rate,
                "optimizer": "adam",
                "lr_schedule": "cosine",
                "seed": self.seed,
            }
        )

    def difference(self, other: "ComparisonSettings") -> str | None:
        """The first setting that differs, in words; None if all are equal.

        A batch size that is not given is chosen from the data, so it does not differ. Seeds can be added.
        """
        mine, theirs = self._flat(), other._flat()
        del mine["seeds"], theirs["seeds"]
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
