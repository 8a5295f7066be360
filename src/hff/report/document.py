"""The content of a report, apart from its form: sections of text, tables and pictures, and values."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: str


@dataclass(frozen=True)
class Lines:
    """A few lines, each of them a sentence or a command."""

    lines: tuple[str, ...]
    code: bool = False


@dataclass(frozen=True)
class Table:
    """A table. The first column names the row."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A figure with its alternative text, which says what it shows to those who cannot see it."""

    name: str
    """A name that no other picture of the report has; that of its file."""
    figure: "Figure"
    alt: str
    caption: str


Part = Paragraph | Lines | Table | Picture


@dataclass(frozen=True)
class Section:
    """A section of a report."""

    name: str
    """The anchor of the section."""
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Value:
    """A measured number, with everything that identifies it."""

    run: str
    quantity: str
    value: float | None
    unit: str
    layer: str = ""
    """The number of the layer; empty for the whole method."""
    epoch: str = ""
    split: str = ""


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    sections: tuple[Section, ...]
    values: tuple[Value, ...] = field(default=())

    def parts(self) -> Iterator[Part]:
        """The parts of all sections, in order."""
        for section in self.sections:
            yield from section.parts

    def to_csv(self) -> str:
        """All measured numbers, one in each row."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = ("run", "quantity", "split", "layer", "epoch", "value", "unit")
        writer.writerow(columns)
        for value in self.values:
            writer.writerow([getattr(value, column) for column in columns])
        return text.getvalue()

    def to_markdown(self, folder: str = "figures") -> str:
        """The report as Markdown, with its figures in a folder beside it."""
        lines = [f"# {self.title}", ""]
        for section in self.sections:
            lines += [f"## {section.title}", ""]
            for part in section.parts:
                lines += [*_markdown(part, folder), ""]
        return "\n".join(lines).rstrip("\n") + "\n"


def _markdown(part: Part, folder: str) -> Sequence[str]:
    if isinstance(part, Paragraph):
        return [_plain(part.text)]
    if isinstance(part, Lines):
        return [f"    {line}" for line in part.lines] if part.code else [f"- {_plain(x)}" for x in part.lines]
    if isinstance(part, Table):
        head = f"| {' | '.join(map(_in_cell, part.header))} |"
        rows = [f"| {' | '.join(map(_in_cell, row))} |" for row in part.rows]
        return [f"**{_plain(part.caption)}**", "", head, f"|{'---|' * len(part.header)}", *rows]
    return [f"![{_plain(part.alt)}]({folder}/{part.name}.png)", "", f"*{_plain(part.caption)}*"]


def _plain(text: str) -> str:
    """Text whose characters have no meaning in Markdown."""
    for character in "\\`*_[]<>":
        text = text.replace(character, f"\\{character}")
    return text


def _in_cell(text: str) -> str:
    return _plain(text).replace("|", "\\|").replace("\n", " ")
