"""The tables of a comparison."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from hff.comparison.ranking import grouped, ranks
from hff.comparison.rates import MOST, SHARE, START
from hff.comparison.result import MethodResult
from hff.comparison.settings import PROTOCOL, ComparisonSettings
from hff.config import shown
from hff.experiment import data_set_fields
from hff.methods import Group

MISSING = "–"

COLUMNS: dict[str, Callable[[MethodResult], str]] = {
    "method": lambda result: result.method,
    "group": lambda result: result.group.short,
    "network": lambda result: result.network,
    "form": lambda result: result.form,
    "rate": lambda result: f"{result.learning_rate:g}",
    "validation %": lambda result: (
        "failed" if result.failure else _accuracy(result.validation_accuracy, result.validation_std)
    ),
    "test %": lambda result: _accuracy(result.test_accuracy, result.test_std),
    "claimed %": lambda result: result.claimed or MISSING,
    "parameters": lambda result: f"{result.prediction_parameters:,}",
    "in training": lambda result: f"{result.parameters:,}",
    "training s": lambda result: _number(result.training_seconds, ".1f"),
    "epochs": lambda result: _number(result.epochs, ".1f"),
    "s / epoch": lambda result: _number(result.seconds_per_epoch, ".3g"),
    "MB": lambda result: _number(result.peak_memory_mb, ".0f"),
    "passes": lambda result: str(result.passes),
    "s / 10,000": lambda result: _number(result.seconds_per_10000_predictions, ".2g"),
}
"""The header of each column after the rank, and the function that returns its cell."""
HEADLINES = {
    Group.LOCAL: "strictly local",
    Group.AUXILIARY: "auxiliary layers",
    Group.FEEDBACK: "feedback from top",
    Group.FURTHER: "longer gradient",
    Group.BACKPROP: "backprop",
}
"""The groups in a few letters, so that the table stays narrow."""
NOTE = (
    "Methods are ranked on validation, and the test split is read once. Means that differ by less than the "
    "larger of their standard deviations are ties. Parameters are those that a prediction uses, and in "
    "training is the number of all parameters. Training seconds exclude validation and checkpoints. MB is "
    "the memory that training adds to a process at its peak. Passes are the forward passes of one "
    "prediction, and s / 10,000 the seconds of 10,000 predictions. Claimed is the paper's number for the "
    "method and this kind of network, fully trained."
)


def cells(results: Sequence[MethodResult]) -> list[list[str]]:
    """The cells of the table, starting with the rank, in the order of the results."""
    return [
        [rank or MISSING, *(cell(result) for cell in COLUMNS.values())]
        for rank, result in zip(ranks(results), results, strict=True)
    ]


def grouped_cells(results: Sequence[MethodResult]) -> list[tuple[str, list[list[str]]]]:
    """The cells of the table by group, with a short name of each group."""
    rows = dict(zip((result.method for result in results), cells(results), strict=True))
    return [
        (HEADLINES[group], [rows[each.method] for each in members]) for group, members in grouped(results)
    ]


def failures(results: Sequence[MethodResult]) -> list[tuple[str, str]]:
    """What went wrong, as (method, remark): failed methods, and what was not measured or not found."""
    failed = [(each.method, f"failed: {each.failure}") for each in results if each.failure]
    unmeasured = [
        (each.method, f"has no MB, because memory was not measured: {each.memory_failure}")
        for each in results
        if each.memory_failure
    ]
    at_edge = [
        (each.method, f"has its best rate, {each.learning_rate:g}, at the edge of {each.trials} trials.")
        for each in results
        if each.rate_at_edge
    ]
    return failed + unmeasured + at_edge


def as_csv(results: Sequence[MethodResult]) -> str:
    """All fields of all results."""
    text = io.StringIO()
    names = [field.name for field in fields(MethodResult)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", *names])
    for rank, result in zip(ranks(results), results, strict=True):
        writer.writerow([rank, *(getattr(result, name) for name in names)])
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
        *(f"| {' | '.join(row)} |" for _, rows in grouped_cells(results) for row in rows),
        "",
        f"Protocol {PROTOCOL}. {' '.join(f'{line}.' for line in conditions(settings))}",
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
    subject = (
        data.name + (f" ({', '.join(options)})" if options else "") + (f", {network.name}" if network else "")
    )
    limits = [] if settings.seconds is None else [f"{settings.seconds:g} s"]
    if settings.epochs is not None:
        limits.append("1 epoch" if settings.epochs == 1 else f"{settings.epochs} epochs")
    budget = " or ".join(limits) + " of training each"
    return f"{subject}: {', '.join([budget, f'batches of {settings.batch_size}', _seeds(settings)])}"


def conditions(settings: ComparisonSettings) -> list[str]:
    """What each method is given, one sentence each, without the full stop."""
    if settings.same_network:
        form = "All methods get the same bare network"
    else:
        form = "Each method gets the network in the form that it declares"
    trials = [f"A trial has {SHARE:.0%} of the budget"]
    if settings.learning_rate is not None:
        rate = f"The learning rate is {settings.learning_rate:g}"
    elif settings.rates == "declared":
        rate = "Each method has the learning rate that it declares"
    elif settings.rates == "search":
        rate = f"Each method chooses its learning rate in {len(START)} to {MOST} trials"
    else:
        rate = f"Each method chooses among the learning rates {shown(settings.rates)}"
    return [form, rate, *([] if settings.rates == "declared" else trials)]


def _seeds(settings: ComparisonSettings) -> str:
    first, *others = settings.all_seeds
    return f"seeds {first} to {others[-1]}" if others else f"seed {first}"


def _accuracy(mean: float | None, deviation: float | None) -> str:
    return _number(mean, ".2f") + ("" if deviation is None else f" ± {deviation:.2f}")


def _number(value: float | None, form: str) -> str:
    return MISSING if value is None else f"{value:{form}}"
