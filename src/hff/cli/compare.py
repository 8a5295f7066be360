"""`hff compare`: all methods on equal terms, in one table and one figure."""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.output import write, write_json
from hff.cli.parsing import Parser, UsageError, configuring
from hff.cli.train import add_field, add_part, fetch_data, refuse_settings, spoken_choices
from hff.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from hff.comparison import Comparison, ComparisonSettings, MethodResult

SMALL_DATA, SMALL_BUDGET, BUDGET = "digits", "5s", "60s"
"""What is compared when nothing is said takes a few minutes; all other data get a minute for each method."""
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
WIDE = 200
"""Columns of text where no terminal limits them."""
DISPENSABLE = ("epochs", "training s", "network", "s / epoch")
"""Columns that a narrow terminal does without, in this order."""
TRAINING = ("epochs", "batch_size", "learning_rate")
"""The settings of a training that may be set for all methods."""


def main(argv: Sequence[str]) -> None:
    from hff.comparison import Comparison
    from hff.training import pick_device

    with configuring():
        parser = flags_of(spoken_choices(argv))
        given = parser.read(argv)
        if given is None:
            return
        pick_device(given.device)
        machine: dict[str, Any] = {"data_dir": given.data_dir, "device": given.device}
        if given.resume:
            refuse_settings(given)
            out = given.resume
            comparison = Comparison.open(out, **machine)
        else:
            terms = settings_of(given)
            out = given.out or default_folder(terms)
            fetch_data(terms.data, given.data_dir, given.quiet or given.json)
            names = given.methods and [name.strip() for name in given.methods.split(",")]
            comparison = Comparison(out, terms, names, **machine)
    rows = _run(comparison, quiet=given.quiet or given.json)
    figure = _draw(comparison, rows)
    _answer(comparison, rows, figure, given)


def flags_of(spoken: Mapping[str, str]) -> Parser:
    """The parser for the data set and, where one is chosen, the network."""
    from hff.config import fields_of
    from hff.experiment import SCALARS, Experiment
    from hff.training import Settings

    network = spoken.get("--network")
    strays = [flag for flag in spoken if flag.startswith("--network.")]
    if strays and network is None:
        raise UsageError(f"{strays[0]} needs its network: add --network NAME.")
    named = {part: spoken[f"--{part}"] for part in ("network", "data") if f"--{part}" in spoken}
    experiment = Experiment.from_mapping({"data": SMALL_DATA, **named})
    parser = Parser("compare", "Train all methods on equal terms and rank them on validation examples.")
    parser.usage = "hff compare [--flag value ...]"
    parser.add_machine_flags()
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors")
    run = parser.add_argument_group("comparison")
    run.add_argument("--methods", metavar="NAME,NAME", help="from `hff list methods` (all)")
    text = f"training time of each method, such as 90s, 5m or 1h ({BUDGET}; {SMALL_DATA}: {SMALL_BUDGET})"
    run.add_argument("--budget", metavar="TIME", help=text)
    run.add_argument("--out", type=Path, metavar="DIR", help="folder (named after the terms, in runs/)")
    run.add_argument("--resume", type=Path, metavar="DIR", help="go on with a comparison")
    defaults = {"epochs": "in place of --budget", "learning_rate": "what each method declares"}
    for field in (*SCALARS, *fields_of(Settings)):
        if field.name in ("seed", *TRAINING):
            add_field(run, field, field.name, defaults.get(field.name, field.default))
    if network is None:
        text = "what all methods train (an mlp, or a small cnn where a rule takes no mlp)"
        run.add_argument("--network", metavar="NAME", default=argparse.SUPPRESS, help=text)
    else:
        add_part(parser, "network", experiment.network)
    add_part(parser, "data", experiment.data)
    return parser


def settings_of(given: argparse.Namespace) -> "ComparisonSettings":
    """What the flags say."""
    from hff.comparison import ComparisonSettings
    from hff.experiment import Experiment

    said = vars(given)
    if given.budget is not None and "epochs" in said:
        raise UsageError("Give either --budget or --epochs, not both.")
    parts: dict[str, dict[str, Any]] = {"data": {"name": SMALL_DATA}}
    for key, value in said.items():
        part, dot, option = key.partition(".")
        if part in ("data", "network"):
            parts.setdefault(part, {})[option if dot else "name"] = value
    settings = {key: said[key] for key in ("seed", *TRAINING) if key in said}
    experiment = Experiment.from_mapping({**parts, **settings})
    budget = given.budget or (SMALL_BUDGET if experiment.data.name == SMALL_DATA else BUDGET)
    return ComparisonSettings(
        data=experiment.data,
        network=experiment.network if "network" in parts else None,
        seconds=None if "epochs" in said else seconds(budget),
        epochs=experiment.training.epochs if "epochs" in said else None,
        batch_size=experiment.training.batch_size,
        learning_rate=experiment.training.learning_rate if "learning_rate" in said else None,
        seed=experiment.seed,
    )


def seconds(text: str) -> float:
    """A span of time as one types it: 90, 90s, 1.5m, 1h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--budget must be a time such as 90s, 5m or 1h, not {text!r}.")
    return float(match[1]) * UNITS[match[2]]


def default_folder(terms: "ComparisonSettings") -> Path:
    """The same command finds the same folder again, and goes on there."""
    network = [terms.network.name] if terms.network else []
    return Path("runs", "-".join(["compare", terms.data.name, *network, terms.budget, f"seed{terms.seed}"]))


def _run(comparison: "Comparison", quiet: bool) -> "list[MethodResult]":
    from hff.cli.progress import ComparisonDisplay

    try:
        if quiet:
            return comparison.run()
        with ComparisonDisplay(comparison) as listener:
            return comparison.run(listener)
    except KeyboardInterrupt:
        again = f"hff compare --resume {comparison.folder}"
        raise KeyboardInterrupt(f"Stopped; go on with `{again}`.") from None


def _draw(comparison: "Comparison", rows: "list[MethodResult]") -> Path | str:
    """The figure's file, or why there is none."""
    from hff.comparison.figure import draw

    try:
        return draw(rows, comparison.terms, comparison.folder)
    except UserError as error:
        return str(error)


def _answer(
    comparison: "Comparison", rows: "list[MethodResult]", figure: Path | str, given: argparse.Namespace
) -> None:
    from hff.comparison.compare import PAGE, TABLE

    drawn = isinstance(figure, Path)
    if given.json:
        document = {
            "folder": str(comparison.folder),
            **comparison.terms.to_mapping(),
            "rows": [asdict(row) for row in rows],
            "unsupported": comparison.unsupported,
            "figure": str(figure) if drawn else None,
        }
        write_json(document)
        return
    if given.quiet:
        return
    _show(rows)
    files = [TABLE, PAGE, *([figure.name] if isinstance(figure, Path) else [])]
    write(f"\nThe table is in {comparison.folder}: {', '.join(files)}; each method's run is beside it.")
    if not drawn:
        write(str(figure))


def _show(rows: "list[MethodResult]") -> None:
    import sys

    from rich.console import Console

    from hff.comparison.results import NOTE

    terminal = Console(file=sys.stdout, highlight=False)
    width = terminal.width if terminal.is_terminal else WIDE
    console = Console(file=sys.stdout, highlight=False, width=width)
    write()
    console.print(table_of(rows, width))
    for row in rows:
        if row.failure:
            write(f"{row.method} failed: {row.failure}")
    write()
    console.print(NOTE, style="dim")


def table_of(rows: "list[MethodResult]", width: int) -> "Table":
    """The table that people see; what its files tell as well is left out where it is too wide."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hff.comparison.results import COLUMNS, cells

    console = Console(width=10 * WIDE)
    for skipped in range(len(DISPENSABLE) + 1):
        headers = [header for header in ("", *COLUMNS) if header not in DISPENSABLE[:skipped]]
        narrow = skipped == len(DISPENSABLE)
        table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=narrow)
        for header in headers:
            words = header in ("method", "network")
            table.add_column(header, justify="left" if words else "right", no_wrap=True)
        for cell in cells(rows):
            shown = dict(zip(("", *COLUMNS), cell, strict=True))
            style = "bold" if shown["method"] == "hff" else None
            table.add_row(*(Text(shown[header]) for header in headers), style=style)
        if console.measure(table).maximum <= width:
            break
    return table
