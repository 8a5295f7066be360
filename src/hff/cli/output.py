"""Answers on standard output: a table for people, or one JSON document for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any


def write(text: str = "") -> None:
    sys.stdout.write(text + "\n")


def write_json(document: Any) -> None:
    write(json.dumps(document, indent=2))


def write_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns aligned to the left, numbers to the right; the last column is never cut."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    numeric = [all(_is_number(row[i]) for row in cells) for i in range(len(header))]
    for row in [list(header), *cells]:
        aligned = zip(row, widths, numeric, strict=True)
        write("  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in aligned).rstrip())


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _is_number(cell: str) -> bool:
    return cell == "" or cell.replace(".", "", 1).replace(",", "").lstrip("-").rstrip(" %").isdigit()
