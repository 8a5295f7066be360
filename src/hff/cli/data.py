"""`hff data`: list the data sets with their locations, download one, or write sample data."""

import sys
from collections.abc import Sequence
from pathlib import Path

from hff.cli.output import program, write, write_json, write_table
from hff.cli.parsing import Parser, UsageError, configuring
from hff.errors import unknown

ACTIONS = ("list", "get", "samples")
USES = {
    "scans": ("Classify them", "predict RUN"),
    "labeled": ("Evaluate a run on them", "eval RUN --data.path"),
    "photos": ("Train on them", "train --data folder --data.path"),
    "wine.npz": ("Train on them", "train --data npz --data.path"),
}
"""What the samples are for, and the command, which ends with their path."""


def main(argv: Sequence[str]) -> None:
    parser = Parser(
        "data", "List the data sets with their locations, download the files of one, or write sample data."
    )
    parser.add_argument("action", metavar="list|get|samples", help="what to do")
    text = "the data set to get; or the samples to write: scans, labeled, photos or wine.npz (scans)"
    parser.add_argument("name", nargs="?", metavar="NAME", help=text)
    parser.add_machine_flags(device=False)
    given = parser.read(argv)
    if given is None:
        return
    if given.action not in ACTIONS:
        raise UsageError(str(unknown("action", given.action, ACTIONS)))
    if given.action == "samples":
        _samples(given.name or "scans", given.json)
        return
    if (given.action == "get") != (given.name is not None):
        raise UsageError("Say which data set to get: `hff data get NAME`; `hff data list` takes no name.")
    if given.action == "list":
        _list(given.data_dir, given.json)
    else:
        _get(given.name, given.data_dir, given.json)


def _list(data_dir: Path | None, as_json: bool) -> None:
    from hff.data import datasets, status

    # A package whose data set cannot be loaded does not break the list.
    working = datasets.working(lambda error: sys.stderr.write(f"hff: {error}\n"))
    entries: list[dict[str, object]] = [
        {"name": name, **status(name, data_dir), "description": info.description}
        for name, info in working.items()
    ]
    if as_json:
        write_json(entries)
    else:
        header = ("name", "source", "path", "description")
        rows = [[entry[key] for key in header] for entry in entries]
        write_table(header, rows, paths=("path",))


def _samples(name: str, as_json: bool) -> None:
    from hff.data.samples import write_samples

    with configuring():
        path = write_samples(name)
    if as_json:
        files = [path, *path.rglob("*")]
        write_json({"path": str(path), "files": sorted(str(file) for file in files if file.is_file())})
    else:
        purpose, command = USES[name]
        write(f"The samples are in {path}. {purpose} with:\n  {program()} {command} {path}")


def _get(name: str, data_dir: Path | None, as_json: bool) -> None:
    from hff.data import datasets

    if name not in datasets:
        raise UsageError(str(unknown("data set", name, datasets)))
    path = fetch(name, data_dir, quiet=as_json)
    if as_json:
        write_json({"name": name, "path": str(path)})
    else:
        write(f"{name} is in {path}")


def fetch(name: str, data_dir: Path | None, quiet: bool) -> Path:
    """The folder of the files of a data set. A terminal shows the progress of a download."""
    from hff.data import get

    if quiet or not sys.stderr.isatty():
        return get(name, data_dir)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file, total=total)
            progress.update(tasks[file], completed=done, total=total)

        return get(name, data_dir, show)
