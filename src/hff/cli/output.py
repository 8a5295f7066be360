"""Output of the verbs: a table for people, or a JSON document for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any


def write(text: str = "") -> None:
    """Writes a line to standard output."""
    sys.stdout.write(text + "\n")


def write_json(document: Any) -> None:
    """Writes a JSON document to standard output."""
    write(json.dumps(document, indent=2))


def write_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes a table: text is aligned left, numbers are aligned right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    numeric = [all(_is_number(row[i]) for row in cells) for i in range(len(header))]
    for row in [list(header), *cells]:
        columns = zip(row, widths, numeric, strict=True)
        aligned = (cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns)
        write("  ".join(aligned).rstrip())


def number(value: float | dict[str, float | None] | None, factor: float = 1.0, digits: int = 2) -> str:
    """A number, or the mean and standard deviation over seeds; empty for None."""
    if value is None:
        return ""
    if not isinstance(value, dict):
        return f"{factor * value:.{digits}f}"
    parts = [factor * part for part in (value["mean"], value["std"]) if part is not None]
    return " ± ".join(f"{part:.{digits}f}" for part in parts)


def percent(share: float | dict[str, float | None] | None) -> str:
    """A share between 0 and 1 in percent, formatted like `number`."""
    return "" if share is None else f"{number(share, 100)} %"


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _is_number(cell: str) -> bool:
    return set(cell) <= set("0123456789.,-± %")
