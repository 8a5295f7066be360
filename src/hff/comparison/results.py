"""The rows of a comparison, best on validation first, and the tables that are made of them."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hff.comparison.entrants import Entrant
from hff.comparison.settings import ComparisonSettings
from hff.config import shown
from hff.experiment import data_set_fields
from hff.paper import claimed
from hff.training import Run

COST, FAILURE = "cost.json", "failure.json"
MEGABYTE = 1e6
MISSING = "–"


@dataclass(frozen=True)
class MethodResult:
    """What is known about one method."""

    method: str
    title: str
    network: str
    validation_accuracy: float | None
    """Of the read-out, in percent, like all accuracies here; the rows are ranked by it."""
    test_accuracy: float | None
    claimed: str | None
    """The paper's number for this method, data set and kind of network, as printed."""
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

    @property
    def claimed_value(self) -> float | None:
        return float(self.claimed.split()[0].lstrip(">≤≈")) if self.claimed else None


def row_of(entrant: Entrant, run: Run, train: int) -> MethodResult:
    """The row of a method, from its run folder; train: samples of the training split."""
    experiment = entrant.experiment
    summary, position = run.summary() or {}, run.position()
    cost, failure = (_read(run, name) for name in (COST, FAILURE))
    tested = _read(run, "eval-test.json")
    claim = claimed(entrant.method, experiment.data.name, experiment.network.name)
    epochs = position.samples / train
    predicted, memory = cost.get("prediction_seconds"), cost.get("peak_memory")
    return MethodResult(
        method=entrant.method,
        title=entrant.title,
        network=entrant.network,
        validation_accuracy=_percent(summary.get("read_out_accuracy")),
        test_accuracy=_percent(tested.get("accuracy")),
        claimed=claim.printed if claim else None,
        training_seconds=round(position.spent, 3),
        epochs=round(epochs, 2),
        seconds_per_epoch=round(position.spent / epochs, 4) if epochs else None,
        peak_memory_mb=None if memory is None else round(memory / MEGABYTE, 1),
        passes=entrant.passes,
        seconds_per_10000_predictions=None if predicted is None else round(10_000 * predicted, 4),
        parameters=entrant.parameters,
        learning_rate=experiment.training.learning_rate,
        failure=failure.get("reason"),
    )


def ranked(rows: Iterable[MethodResult]) -> list[MethodResult]:
    """The best on validation first, by name where they are equal; what failed comes last."""
    return sorted(
        rows, key=lambda row: (row.failure is not None, -(row.validation_accuracy or 0.0), row.method)
    )


COLUMNS: dict[str, Callable[[MethodResult], str]] = {
    "method": lambda row: row.method,
    "network": lambda row: row.network,
    "validation %": lambda row: "failed" if row.failure else _number(row.validation_accuracy, ".2f"),
    "test %": lambda row: _number(row.test_accuracy, ".2f"),
    "claimed %": lambda row: row.claimed or MISSING,
    "training s": lambda row: _number(row.training_seconds, ".1f"),
    "epochs": lambda row: _number(row.epochs, ".1f"),
    "s / epoch": lambda row: _number(row.seconds_per_epoch, ".3g"),
    "MB": lambda row: _number(row.peak_memory_mb, ".0f"),
    "passes": lambda row: str(row.passes),
    "s / 10,000": lambda row: _number(row.seconds_per_10000_predictions, ".2g"),
}
"""What people see: header and cell of each column after the rank."""
NOTE = (
    "Ranked on validation; the test split was read once. Training seconds leave out validation and "
    "checkpoints; MB is what training adds to a process at its peak; passes and seconds are those of "
    "predictions. Claimed is the paper's number for the method and that kind of network, trained to its end."
)


def cells(rows: Sequence[MethodResult]) -> list[list[str]]:
    """The table without its header, the rank in front."""
    return [
        [MISSING if row.failure else str(rank), *(cell(row) for cell in COLUMNS.values())]
        for rank, row in enumerate(rows, 1)
    ]


def as_csv(rows: Sequence[MethodResult]) -> str:
    """Every field of every row."""
    text = io.StringIO()
    names = [field.name for field in fields(MethodResult)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", *names])
    for rank, row in enumerate(rows, 1):
        writer.writerow(["" if row.failure else rank, *(getattr(row, name) for name in names)])
    return text.getvalue()


def as_markdown(
    rows: Sequence[MethodResult], unsupported: Mapping[str, str], terms: ComparisonSettings
) -> str:
    """The table that people see, with the terms above it and what is missing below."""
    header = ["", *COLUMNS]
    lines = [
        f"# {table_title(terms)}",
        "",
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in cells(rows)),
        "",
        NOTE,
    ]
    remarks = [f"- `{row.method}` failed: {row.failure}" for row in rows if row.failure]
    remarks += [f"- `{name}` is left out: {reason}" for name, reason in unsupported.items()]
    return "\n".join([*lines, *(["", *remarks] if remarks else []), ""])


def table_title(terms: ComparisonSettings) -> str:
    """What was compared, in one line."""
    defaults = {field.name: field.default for field in data_set_fields(terms.data.name)}
    chosen = [
        f"{name} {shown(value)}" for name, value in terms.data.options.items() if value != defaults[name]
    ]
    on = terms.data.name + (f" ({', '.join(chosen)})" if chosen else "")
    parts = [
        f"{on}, {terms.network.name}" if terms.network else on,
        f"{terms.seconds:g} s" if terms.seconds is not None else f"{terms.epochs} epochs",
        f"batches of {terms.batch_size}",
        *([] if terms.learning_rate is None else [f"learning rate {terms.learning_rate:g}"]),
        f"seed {terms.seed}",
    ]
    entrant, budget, *rest = parts
    return f"{entrant}: {budget} of training each, {', '.join(rest)}"


def _read(run: Run, name: str) -> dict[str, Any]:
    return run.read_json(name) if (run.folder / name).exists() else {}


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


def _number(value: float | None, form: str) -> str:
    return MISSING if value is None else f"{value:{form}}"
