"""The result of a method: accuracies of all seeds, and costs."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hff.comparison.entrants import Entrant
from hff.comparison.settings import PROTOCOL
from hff.methods import Group
from hff.paper import claimed
from hff.training import Run

MEGABYTE = 1e6


@dataclass(frozen=True)
class MethodResult:
    """The result of one method. With several seeds, numbers are means unless they say something else."""

    method: str
    """The name of the entrant: the method, and its options if it was given any."""
    title: str
    group: Group
    """What the rule is allowed to use."""
    network: str
    form: str
    """The options of the network's form that the method declares, or "bare"."""
    validation_accuracy: float | None
    """Accuracy of the read-out in percent. Methods are ranked by it."""
    test_accuracy: float | None
    """Accuracy of the read-out in percent."""
    claimed: str | None
    """The number that the paper prints for this method, data set and kind of network."""
    training_seconds: float
    epochs: float
    seconds_per_epoch: float | None
    peak_memory_mb: float | None
    passes: int
    seconds_per_10000_predictions: float | None
    parameters: int
    """Parameters that training has."""
    prediction_parameters: int
    """Parameters that a prediction uses."""
    learning_rate: float
    failure: str | None
    """Why the training failed; None if it did not."""
    memory_failure: str | None = None
    """Why the memory was not measured; None if it was."""
    validation_std: float | None = None
    """Standard deviation over the seeds; None with one seed."""
    test_std: float | None = None
    """Standard deviation over the seeds; None with one seed."""
    seeds: int = 1
    """Number of finished trainings."""
    trials: int = 0
    """Number of short trainings that chose the learning rate."""
    rate_at_edge: bool = False
    """Whether the chosen rate is the lowest or highest that was tried, so that a better one may exist."""
    protocol: int = PROTOCOL

    @property
    def claimed_value(self) -> float | None:
        """The claimed accuracy as a number."""
        return float(self.claimed.split()[0].lstrip(">≤≈")) if self.claimed else None


def result_of(
    entrant: Entrant,
    runs: Sequence[Run],
    cost: Mapping[str, Any],
    training_samples: int,
    *,
    learning_rate: float,
    trials: int = 0,
    rate_at_edge: bool = False,
) -> MethodResult:
    """The result of an entrant.

    Args:
        entrant: the entrant.
        runs: its runs, one for each seed.
        cost: the measured time and memory.
        training_samples: size of the training split.
        learning_rate: the learning rate of the runs.
        trials: number of trials that chose it.
        rate_at_edge: whether it is the lowest or highest rate of the trials.
    """
    experiment = entrant.experiment
    started = [run for run in runs if run.position().samples] or list(runs[:1])
    spent = statistics.fmean(run.position().spent for run in started)
    epochs = statistics.fmean(run.position().samples / training_samples for run in started)
    validated = _percentages((run.summary() or {}).get("read_out_accuracy") for run in runs)
    tested = _percentages((run.evaluation("test") or {}).get("accuracy") for run in runs)
    claim = None
    if entrant.as_published:
        claim = claimed(entrant.method, experiment.data.name, experiment.network.name)
    predicted, memory = cost.get("prediction_seconds"), cost.get("peak_memory")
    return MethodResult(
        method=entrant.name,
        title=entrant.title,
        group=entrant.group,
        network=entrant.network,
        form=entrant.form,
        validation_accuracy=_mean(validated),
        test_accuracy=_mean(tested),
        claimed=claim.printed if claim else None,
        training_seconds=round(spent, 3),
        epochs=round(epochs, 2),
        seconds_per_epoch=round(spent / epochs, 4) if epochs else None,
        peak_memory_mb=None if memory is None else round(memory / MEGABYTE, 1),
        passes=entrant.passes,
        seconds_per_10000_predictions=None if predicted is None else round(10_000 * predicted, 4),
        parameters=entrant.parameters,
        prediction_parameters=entrant.prediction_parameters,
        learning_rate=learning_rate,
        failure=next((reason for run in runs if (reason := run.failure())), None),
        memory_failure=cost.get("memory_failure"),
        validation_std=_deviation(validated),
        test_std=_deviation(tested),
        seeds=sum(run.finished for run in runs),
        trials=trials,
        rate_at_edge=rate_at_edge,
    )


def _percentages(shares: Iterable[float | None]) -> list[float]:
    return [100 * share for share in shares if share is not None]


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 2) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; None for a single value."""
    return round(statistics.stdev(values), 2) if len(values) > 1 else None
