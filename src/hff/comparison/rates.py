"""The search for a learning rate by short trials, which are judged on the validation split."""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import Literal

from hff.errors import UserError
from hff.experiment import Experiment

Rates = Literal["declared", "search"] | tuple[float, ...]
START = (0, -1, 1)
"""The steps from the declared rate that every method tries first."""
MOST = 7
"""The largest number of trials of a method."""
SHARE = 0.2
"""The budget of a trial, as a share of the budget of a training."""


@dataclass(frozen=True)
class Trial:
    """A short training with one learning rate."""

    method: str
    learning_rate: float
    validation_accuracy: float | None
    """In percent; None if the training failed."""
    chosen: bool
    training_seconds: float
    epochs: float
    failure: str | None


@dataclass(frozen=True)
class RateSearch:
    """Chooses the learning rate of a method by its trials.

    The trials start with the declared rate and its two neighbors. They continue beyond the best rate until it
    has a rate on either side that is not better, or until there are `MOST` trials. If a list of rates is
    given, these are tried and no others.

    Args:
        declared: the rate that the method declares.
        rates: "declared" for no trials, "search", or the rates to try.
    """

    declared: float
    rates: Rates

    @property
    def first(self) -> list[float]:
        """The rates of the first trials, which every method has."""
        if isinstance(self.rates, tuple):
            return list(self.rates)
        return [rate_at(self.declared, step) for step in START] if self.rates == "search" else []

    def next(self, tried: Mapping[float, float | None]) -> float | None:
        """The next rate to try, given the accuracy of each rate so far; None if the search is over.

        The accuracy of a rate is None if its training failed.
        """
        missing = [rate for rate in self.first if rate not in tried]
        if missing:
            return missing[0]
        if self.rates != "search" or len(tried) >= MOST:
            return None
        best = self.best(tried)
        if best == max(tried):
            return self._neighbor(tried, 1)
        return self._neighbor(tried, -1) if best == min(tried) else None

    def best(self, tried: Mapping[float, float | None]) -> float:
        """The rate with the highest accuracy; of equal ones the nearest to the declared rate."""
        reached = {rate: accuracy for rate, accuracy in tried.items() if accuracy is not None}
        if not reached:
            return self.declared
        return max(reached, key=lambda rate: (reached[rate], -abs(math.log(rate / self.declared)), -rate))

    def at_edge(self, tried: Mapping[float, float | None]) -> bool:
        """Whether the best rate is the lowest or the highest that was tried."""
        return bool(tried) and self.best(tried) in (min(tried), max(tried))

    def _neighbor(self, tried: Mapping[float, float | None], direction: int) -> float:
        steps = {rate_at(self.declared, step): step for step in range(-MOST, MOST + 1)}
        return rate_at(self.declared, direction + steps[max(tried) if direction > 0 else min(tried)])


def rate_at(declared: float, step: int) -> float:
    """The rate that is this many steps above the declared one: 0.001, 0.003, 0.01, 0.03 and so on."""
    half = 1.0
    if step % 2:
        leading = declared / 10 ** math.floor(math.log10(declared) + 1e-9)
        half = 3.0 if leading < 3 - 1e-9 else 10 / 3
    return float(f"{declared * half * 10.0 ** (step // 2):.4g}")


def trial_of(experiment: Experiment, rate: float) -> Experiment:
    """The short training of an experiment with a learning rate."""
    training = experiment.training
    counts_epochs = training.seconds is None or training.stop_at == "either"
    return replace(
        experiment,
        training=replace(
            training,
            learning_rate=rate,
            seconds=None if training.seconds is None else SHARE * training.seconds,
            epochs=max(1, round(SHARE * training.epochs)) if counts_epochs else training.epochs,
        ),
    )


def checked_rates(rates: object) -> Rates:
    """The rates, if they are valid."""
    if rates in ("declared", "search"):
        return rates
    try:
        found = tuple(float(rate) for rate in rates)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        found = ()
    if not found or len(set(found)) < len(found) or not all(0 < rate < math.inf for rate in found):
        raise UserError(
            "rates must be declared, search, or different positive numbers such as 0.001,0.003, not "
            f"{rates!r}."
        )
    return found


def trials_csv(trials: Iterable[Trial]) -> str:
    """All fields of all trials."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Trial)])
    writer.writerows(astuple(trial) for trial in trials)
    return text.getvalue()
