"""Output of the verbs: a table for people, or a JSON document for programs."""

import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

WIDTH = 80
"""The width of tables if the output is not a terminal."""
READABLE, NARROWEST = 30, 10
"""Text columns get the first width before optional columns are left out, and never less than the second."""


def write(text: str = "") -> None:
    """Writes a line to standard output."""
    sys.stdout.write(text + "\n")


def write_json(document: Any) -> None:
    """Writes a JSON document to standard output."""
    write(json.dumps(document, indent=2))


def program() -> str:
    """The command that runs this program again: `hff`, or its path if `hff` would not run it."""
    given = Path(sys.argv[0])
    if given.name == "__main__.py":
        return "hff" if shutil.which("hff") else f"{Path(sys.executable).name} -m hff"
    found = shutil.which("hff")
    if given.stem != "hff" or not given.exists() or (found and os.path.samefile(found, given)):
        return "hff"
    here = Path.cwd()
    inside = given.is_absolute() and given.is_relative_to(here)
    return shlex.quote(str(given.relative_to(here) if inside else given))


def output_width() -> int:
    """The width of the terminal, or `WIDTH` if the output is not a terminal."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def write_table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    optional: Sequence[str] = (),
    paths: Sequence[str] = (),
) -> None:
    """Writes a table that fits into the width of the output. Text is aligned left, numbers right.

    Args:
        header: the names of the columns. The first column is the last one to be shortened.
        rows: the cells of each row.
        optional: columns that are left out in this order if the table is too wide.
        paths: columns of paths, which are shortened at the start.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    numeric = [all(_is_number(row[i]) for row in cells) for i in range(len(header))]
    shown, left_out, limit = list(range(len(header))), [], output_width()

    def excess(sizes: Sequence[int]) -> int:
        return sum(sizes[i] + 2 for i in shown) - 2 - limit

    readable = [
        width if right else min(width, READABLE) for width, right in zip(widths, numeric, strict=True)
    ]
    for name in optional:
        if name in header and excess(readable) > 0:
            shown.remove(header.index(name))
            left_out.append(name)
    while (over := excess(widths)) > 0:
        widest = max(shown, key=lambda i: (not numeric[i] and (i > 0 or header[i] in paths), widths[i]))
        others = [widths[i] for i in shown if i != widest and not numeric[i]]
        # The widest column is shortened to the width of the next one at most, then both are.
        smaller = max(NARROWEST, widths[widest] - over, min(widths[widest] - 1, max(others, default=0)))
        if smaller >= widths[widest]:
            break
        widths[widest] = smaller
    for row in [list(header), *cells]:
        columns = [_lines(row[i], widths[i], is_path=header[i] in paths) for i in shown]
        for line in zip_longest(*columns, fillvalue=""):
            parts = zip(line, shown, strict=True)
            aligned = (t.rjust(widths[i]) if numeric[i] else t.ljust(widths[i]) for t, i in parts)
            write("  ".join(aligned).rstrip())
    if left_out:
        write(f"\nNot shown: {', '.join(left_out)}. --json shows everything.")


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _lines(text: str, width: int, is_path: bool) -> list[str]:
    """The lines of a cell. Paths are cut at the start, other text is wrapped."""
    if len(text) <= width:
        return [text]
    return ["…" + text[len(text) - width + 1 :]] if is_path else textwrap.wrap(text, width)


def _is_number(cell: str) -> bool:
    return set(cell) <= set("0123456789.,-± %")
