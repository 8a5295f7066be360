"""What a report can be about: runs, runs with several seeds, and comparisons."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from hff.comparison.figure import comparison_figure
from hff.comparison.result import MethodResult
from hff.comparison.results import COLUMNS as COMPARISON
from hff.comparison.results import NOTE, conditions, grouped_cells, table_title
from hff.comparison.saved import SETTINGS, read_comparison
from hff.errors import UserError
from hff.files import read_text
from hff.methods import Group
from hff.report.document import Lines, Paragraph, Picture, Section, Table, Value
from hff.run_group import RunGroup
from hff.training import Run

TABLE = "comparison.csv"


def runs_in(folder: Path) -> dict[str, Run] | None:
    """The runs of a run folder or of a folder with several seeds, by name; None if it is neither.

    The names of runs with several seeds are GROUP/seed-N.
    """
    if RunGroup.exists(folder):
        runs = RunGroup(folder).runs()
        if not runs:
            raise UserError(f"No run in {folder} has been started yet; train it first.")
        return {f"{folder.name}/{run.folder.name}": run for run in runs.values()}
    return {folder.name or str(folder): Run(folder)} if Run.exists(folder) else None


Exhibit = Callable[[Path], tuple[list[Section], list[Value]]]
"""Reads a folder that is not a run: its sections and measured numbers."""


def comparison_sections(folder: Path) -> tuple[list[Section], list[Value]]:
    """The table and the figure of a comparison."""
    found = read_comparison(folder)
    if found is None or not (folder / TABLE).exists():
        raise UserError(f"{folder} contains no finished comparison; resume it with hff compare --resume.")
    settings, _ = found
    results = read_results(folder / TABLE)
    rows = tuple((row[1], row[0], *row[2:]) for _, members in grouped_cells(results) for row in members)
    table = Table("All methods.", ("method", "rank", *list(COMPARISON)[1:]), rows)
    best = max(results, key=lambda each: each.validation_accuracy or 0)
    name = f"comparison-{folder.name}"
    picture = Picture(
        name,
        comparison_figure(results, settings),
        f"Dot and bar charts of {len(results)} methods by group: accuracy, parameters, time and memory. The "
        f"highest validation accuracy is {best.validation_accuracy} %, by {best.method}. The table below has "
        "all numbers.",
        f"Accuracy, size, time and memory: {table_title(settings)}.",
    )
    lines = Lines(tuple(f"{line}." for line in conditions(settings)))
    values = [
        Value(f"{folder.name}/{each.method}", "accuracy", value, "%", split=split)
        for each in results
        for split, value in (("validation", each.validation_accuracy), ("test", each.test_accuracy))
        if value is not None
    ]
    about = Paragraph(f"{table_title(settings)}. {NOTE}")
    return [Section(name, f"Comparison {folder.name}", (about, lines, picture, table))], values


EXHIBITS: dict[str, Exhibit] = {SETTINGS: comparison_sections}
"""Readers of other folders, by the file that marks such a folder."""


def read_results(path: Path) -> list[MethodResult]:
    """The results in the CSV table of a comparison."""
    kinds = get_type_hints(MethodResult)
    rows = list(csv.DictReader(read_text(path).splitlines()))
    try:
        names = [each.name for each in fields(MethodResult)]
        return [MethodResult(**{name: _parsed(row[name], kinds[name]) for name in names}) for row in rows]
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} is damaged or of another version of hff ({error}).") from None


def _parsed(text: str, kind: Any) -> Any:
    """A value of a CSV cell: an empty one is None."""
    if kind is Group:
        return next(group for group in Group if text in (str(group), group.name, str(group.value)))
    if text == "":
        return None
    if kind is bool:
        return text == "True"
    names: Sequence[type] = getattr(kind, "__args__", (kind,))
    return names[0](text)
