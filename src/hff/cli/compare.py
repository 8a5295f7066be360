"""`hff compare`: train several methods with the same settings and rank them in a table and a figure."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.flags import (
    CHOSEN_BATCH_SIZE,
    add_field,
    add_part,
    fetch_data,
    refuse_settings,
    scan_arguments,
    settings_in,
)
from hff.cli.output import output_width, program, write, write_json
from hff.cli.parsing import Parser, UsageError, configuring
from hff.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from hff.comparison import Comparison, ComparisonSettings, MethodResult
    from hff.comparison.rates import Rates

SMALL_DATA, SMALL_BUDGET, BUDGET = "digits", "5s", "60s"
"""The default comparison takes a few minutes. On other data, each method gets a minute."""
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
UNLIMITED = 2000
"""A width at which no table is cut."""
OPTIONAL_COLUMNS = (
    "group",
    "form",
    "epochs",
    "training s",
    "in training",
    "network",
    "s / epoch",
    "rate",
    "passes",
    "s / 10,000",
    "MB",
)
"""Columns that are dropped if the table is too wide, in this order. Headlines show the groups in any case."""
TRAINING = ("epochs", "batch_size", "learning_rate")
"""The training settings that can be set for all methods."""


def main(argv: Sequence[str]) -> None:
    from hff.comparison import Comparison
    from hff.training import pick_device

    with configuring():
        parser = flags_of(scan_arguments(argv))
        given = parser.read(argv)
        if given is None:
            return
        pick_device(given.device)
        machine: dict[str, Any] = {"data_dir": given.data_dir, "device": given.device}
        if given.resume:
            refuse_settings(given)
            comparison = Comparison.open(given.resume, **machine)
        else:
            settings = settings_of(given)
            out = given.out or default_folder(settings)
            fetch_data(settings.data, given.data_dir, given.quiet or given.json)
            names = given.methods and [name.strip() for name in given.methods.split(",")]
            comparison = Comparison(out, settings, names, **machine)
    results = _run(comparison, quiet=given.quiet or given.json)
    figure = _draw(comparison, results)
    _answer(comparison, results, figure, given)


def flags_of(scanned: Mapping[str, str]) -> Parser:
    """The parser for the selected data set and network."""
    from hff.config import fields_of
    from hff.experiment import SCALARS, Experiment
    from hff.training import Settings

    network = scanned.get("--network")
    options = [flag for flag in scanned if flag.startswith("--network.")]
    if options and network is None:
        raise UsageError(f"{options[0]} needs its network: add --network NAME.")
    named = {part: scanned[f"--{part}"] for part in ("network", "data") if f"--{part}" in scanned}
    experiment = Experiment.from_mapping({"data": SMALL_DATA, **named})
    parser = Parser("compare", "Train methods with the same settings and rank them on validation examples.")
    parser.usage = "hff compare [--flag value ...]"
    parser.add_machine_flags()
    parser.add_argument("--quiet", action="store_true", help="show only errors")
    run = parser.add_argument_group("comparison")
    text = "from `hff list methods`, with options as in hff,hff:temperature=5:lse=mean (all)"
    run.add_argument("--methods", metavar="NAME,NAME", help=text)
    text = f"training time of each method, such as 90s, 5m or 1h ({BUDGET}; {SMALL_DATA}: {SMALL_BUDGET})"
    run.add_argument("--budget", metavar="TIME", help=text)
    text = "learning rates: those that the methods declare, a search by short trials, or a list to try"
    run.add_argument(
        "--rates", metavar="declared|search|LIST", default=argparse.SUPPRESS, help=f"{text} (declared)"
    )
    text = "number of seeds of each method (1)"
    run.add_argument("--seeds", type=int, metavar="N", default=argparse.SUPPRESS, help=text)
    text = "give all methods the same bare network, not the form of network that each one declares"
    run.add_argument("--same-network", action="store_true", default=argparse.SUPPRESS, help=text)
    run.add_argument("--out", type=Path, metavar="DIR", help="folder (named after the settings, in runs/)")
    run.add_argument("--resume", type=Path, metavar="DIR", help="resume a comparison")
    defaults = {
        "epochs": "if given, instead of --budget; with both, whichever ends first",
        "batch_size": CHOSEN_BATCH_SIZE,
        "learning_rate": "what each method declares",
    }
    for field in (*SCALARS, *fields_of(Settings)):
        if field.name in ("seed", *TRAINING):
            add_field(run, field, field.name, defaults.get(field.name, field.default))
    if network is None:
        text = "network of all methods (an mlp, or a small cnn for methods that do not support an mlp)"
        run.add_argument("--network", metavar="NAME", default=argparse.SUPPRESS, help=text)
    else:
        add_part(parser, "network", experiment.network)
    add_part(parser, "data", experiment.data)
    return parser


def settings_of(given: argparse.Namespace) -> "ComparisonSettings":
    """The settings that the flags give."""
    from hff.comparison import ComparisonSettings
    from hff.experiment import Experiment

    flags = settings_in(given)
    flags["data"] = {"name": SMALL_DATA, **flags.get("data", {})}
    experiment = Experiment.from_mapping(flags)
    training = experiment.training
    budget = given.budget or (SMALL_BUDGET if experiment.data.name == SMALL_DATA else BUDGET)
    only_epochs = "epochs" in flags and given.budget is None
    return ComparisonSettings(
        data=experiment.data,
        network=experiment.network if "network" in flags else None,
        seconds=None if only_epochs else seconds(budget),
        epochs=training.epochs if "epochs" in flags else None,
        batch_size=training.batch_size if "batch_size" in flags else None,
        learning_rate=training.learning_rate if "learning_rate" in flags else None,
        rates=rates(getattr(given, "rates", "declared")),
        same_network="same_network" in given,
        seeds=getattr(given, "seeds", 1),
        seed=experiment.seed,
    )


def seconds(text: str) -> float:
    """The seconds of a duration such as 90, 90s, 1.5m or 1h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--budget must be a time such as 90s, 5m or 1h, not {text!r}.")
    return float(match[1]) * UNITS[match[2]]


def rates(text: str) -> "Rates":
    """The rates of a text such as declared, search or 0.001,0.003."""
    from hff.comparison.rates import checked_rates

    return checked_rates(text if text in ("declared", "search") else text.split(","))


def default_folder(settings: "ComparisonSettings") -> Path:
    """The folder of a comparison. It depends on the settings only, so that the same command resumes it."""
    network = [settings.network.name] if settings.network else []
    form = ["same-network"] if settings.same_network else []
    tried = settings.rates
    rates = [] if tried == "declared" else ["search" if tried == "search" else "rates"]
    parts = ["compare", settings.data.name, *network, *form, *rates, settings.budget, f"seed{settings.seed}"]
    return Path("runs", "-".join(parts))


def _run(comparison: "Comparison", quiet: bool) -> "list[MethodResult]":
    from hff.cli.progress import ComparisonDisplay

    with suppress(ImportError):
        # Needed for the figure. It takes a second, which is not part of the estimate if it is spent before.
        import_module("matplotlib.figure")
    try:
        if quiet:
            return comparison.run()
        with ComparisonDisplay(comparison) as listener:
            return comparison.run(listener)
    except OSError as error:
        if error.strerror is None:
            raise
        command = f"{program()} compare --resume {comparison.folder}"
        raise UserError(
            f"{comparison.folder} cannot be written ({error.strerror}); fix the cause, and resume with "
            f"`{command}`."
        ) from error
    except KeyboardInterrupt:
        command = f"{program()} compare --resume {comparison.folder}"
        raise KeyboardInterrupt(f"Interrupted; resume with `{command}`.") from None


def _draw(comparison: "Comparison", results: "list[MethodResult]") -> Path | str:
    """The path of the figure, or the reason why there is none."""
    from hff.comparison.figure import draw

    try:
        return draw(results, comparison.settings, comparison.folder)
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"The figure cannot be written ({error.strerror or error})."


def _answer(
    comparison: "Comparison", results: "list[MethodResult]", figure: Path | str, given: argparse.Namespace
) -> None:
    from hff.comparison import PROTOCOL
    from hff.comparison.compare import PAGE, TABLE, TRIALS

    if given.json:
        document = {
            "folder": str(comparison.folder),
            "protocol": PROTOCOL,
            **comparison.settings.to_mapping(),
            "results": [asdict(result) for result in results],
            "trials": [asdict(trial) for name in comparison.entrants for trial in comparison.trials(name)],
            "unsupported": comparison.unsupported,
            "figure": str(figure) if isinstance(figure, Path) else None,
        }
        write_json(document)
        return
    if given.quiet:
        return
    _show(results)
    tried = [] if comparison.settings.rates == "declared" else [TRIALS]
    files = [TABLE, PAGE, *tried, *([figure.name] if isinstance(figure, Path) else [])]
    write(f"\nThe table and the run of each method are in {comparison.folder}:\n  {', '.join(files)}")
    if isinstance(figure, str):
        write(figure)


def _show(results: "list[MethodResult]") -> None:
    from rich.console import Console

    from hff.comparison.results import NOTE, failures

    width = output_width()
    console = Console(file=sys.stdout, highlight=False, width=width)
    write()
    console.print(table_of(results, width))
    for name, remark in failures(results):
        write(f"{name} {remark}")
    write()
    console.print(NOTE, style="dim")


def table_of(results: "list[MethodResult]", width: int) -> "Table":
    """The table, without optional columns if it would be too wide. The files contain all columns."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hff.comparison.results import COLUMNS, grouped_cells

    console = Console(width=UNLIMITED)
    for dropped in range(len(OPTIONAL_COLUMNS) + 1):
        headers = [header for header in ("", *COLUMNS) if header not in OPTIONAL_COLUMNS[:dropped]]
        narrow = dropped == len(OPTIONAL_COLUMNS)
        table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=narrow)
        for header in headers:
            is_text = header in ("method", "group", "network", "form")
            table.add_column(header, justify="left" if is_text else "right", no_wrap=True)
        for group, rows in grouped_cells(results):
            if "group" not in headers:
                table.add_row("", Text(group), style="dim")
            for row in rows:
                shown = dict(zip(("", *COLUMNS), row, strict=True))
                style = "bold" if shown["method"].partition(":")[0] == "hff" else None
                table.add_row(*(Text(shown[header]) for header in headers), style=style)
        if console.measure(table).maximum <= width:
            break
    return table
