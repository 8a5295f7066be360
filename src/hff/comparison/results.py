"""The results of a comparison, and the tables that show them."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from hff.comparison.entrants import Entrant
from hff.comparison.settings import ComparisonSettings
from hff.config import shown
from hff.experiment import data_set_fields
from hff.paper import claimed
from hff.training import Run

MEGABYTE = 1e6
MISSING = "–"


@dataclass(frozen=True)
class MethodResult:
    """The result of one method."""

    method: str
    title: str
    network: str
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
    learning_rate: float
    failure: str | None
    """Why the training failed; None if it did not."""
    memory_failure: str | None = None
    """Why the memory was not measured; None if it was."""

    @property
    def claimed_value(self) -> float | None:
        """The claimed accuracy as a number."""
        return float(self.claimed.split()[0].lstrip(">≤≈")) if self.claimed else None


def result_of(entrant: Entrant, run: Run, training_samples: int) -> MethodResult:
    """The result of a method, from its run. `training_samples` is the size of the training split."""
    experiment = entrant.experiment
    summary, position, cost = run.summary() or {}, run.position(), run.cost()
    tested = run.evaluation("test") or {}
    claim = claimed(entrant.method, experiment.data.name, experiment.network.name)
    epochs = position.samples / training_samples
    predicted, memory = cost.get("prediction_seconds"), cost.get("peak_memory")
    return MethodResult(
        method=entrant.method,
        title=entrant.title,
        network=entrant.network,
        validation_accuracy=_rounded_percentage(summary.get("read_out_accuracy")),
        test_accuracy=_rounded_percentage(tested.get("accuracy")),
        claimed=claim.printed if claim else None,
        training_seconds=round(position.spent, 3),
        epochs=round(epochs, 2),
        seconds_per_epoch=round(position.spent / epochs, 4) if epochs else None,
        peak_memory_mb=None if memory is None else round(memory / MEGABYTE, 1),
        passes=entrant.passes,
        seconds_per_10000_predictions=None if predicted is None else round(10_000 * predicted, 4),
        parameters=entrant.parameters,
        learning_rate=experiment.training.learning_rate,
        failure=run.failure(),
        memory_failure=cost.get("memory_failure"),
    )


def ranked(results: Iterable[MethodResult]) -> list[MethodResult]:
    """The results ordered by validation accuracy, then by name. Failed methods come last."""
    return sorted(
        results,
        key=lambda result: (
            result.failure is not None,
            -(result.validation_accuracy or 0.0),
            result.method,
        ),
    )


COLUMNS: dict[str, Callable[[MethodResult], str]] = {
    "method": lambda result: result.method,
    "network": lambda result: result.network,
    "validation %": lambda result: "failed" if result.failure else _number(result.validation_accuracy, ".2f"),
    "test %": lambda result: _number(result.test_accuracy, ".2f"),
    "claimed %": lambda result: result.claimed or MISSING,
    "training s": lambda result: _number(result.training_seconds, ".1f"),
    "epochs": lambda result: _number(result.epochs, ".1f"),
    "s / epoch": lambda result: _number(result.seconds_per_epoch, ".3g"),
    "MB": lambda result: _number(result.peak_memory_mb, ".0f"),
    "passes": lambda result: str(result.passes),
    "s / 10,000": lambda result: _number(result.seconds_per_10000_predictions, ".2g"),
}
"""The header of each column after the rank, and the function that returns its cell."""
NOTE = (
    "Methods are ranked on validation, and the test split is read once. Training seconds exclude validation "
    "and checkpoints. MB is the memory that training adds to a process at its peak. Passes are the forward "
    "passes of one prediction, and s / 10,000 the seconds of 10,000 predictions. Claimed is the paper's "
    "number for the method and this kind of network, fully trained."
)


def cells(results: Sequence[MethodResult]) -> list[list[str]]:
    """The cells of the table, starting with the rank."""
    return [
        [MISSING if result.failure else str(rank), *(cell(result) for cell in COLUMNS.values())]
        for rank, result in enumerate(results, 1)
    ]


def failures(results: Sequence[MethodResult]) -> list[tuple[str, str]]:
    """What went wrong, as (method, remark): methods that failed, and memory that was not measured."""
    failed = [(each.method, f"failed: {each.failure}") for each in results if each.failure]
    unmeasured = [
        (each.method, f"has no MB, because memory was not measured: {each.memory_failure}")
        for each in results
        if each.memory_failure
    ]
    return failed + unmeasured


def as_csv(results: Sequence[MethodResult]) -> str:
    """All fields of all results."""
    text = io.StringIO()
    names = [field.name for field in fields(MethodResult)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", *names])
    for rank, result in enumerate(results, 1):
        writer.writerow(["" if result.failure else rank, *(getattr(result, name) for name in names)])
    return text.getvalue()


def as_markdown(
    results: Sequence[MethodResult], unsupported: Mapping[str, str], settings: ComparisonSettings
) -> str:
    """A page with the settings, the table, and the methods that failed or are unsupported."""
    header = ["", *COLUMNS]
    lines = [
        f"# {table_title(settings)}",
        "",
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in cells(results)),
        "",
        NOTE,
    ]
    remarks = [f"- `{name}` {remark}" for name, remark in failures(results)]
    remarks += [f"- `{name}` is left out: {reason}" for name, reason in unsupported.items()]
    return "\n".join([*lines, *(["", *remarks] if remarks else []), ""])


def table_title(settings: ComparisonSettings) -> str:
    """The settings of a comparison in one line."""
    data, network = settings.data, settings.network
    defaults = {field.name: field.default for field in data_set_fields(data.name)}
    options = [f"{name} {shown(value)}" for name, value in data.options.items() if value != defaults[name]]
    parts = [
        data.name
        + (f" ({', '.join(options)})" if options else "")
        + (f", {network.name}" if network else ""),
        f"{settings.seconds:g} s" if settings.seconds is not None else f"{settings.epochs} epochs",
        f"batches of {settings.batch_size}",
        *([] if settings.learning_rate is None else [f"learning rate {settings.learning_rate:g}"]),
        f"seed {settings.seed}",
    ]
    subject, budget, *others = parts
    return f"{subject}: {budget} of training each, {', '.join(others)}"


def _rounded_percentage(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


def _number(value: float | None, form: str) -> str:
    return MISSING if value is None else f"{value:{form}}"
