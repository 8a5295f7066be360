"""`hff data`: which data sets are on this machine, and fetching those that are not."""

import sys
from collections.abc import Sequence
from pathlib import Path

from hff.cli.output import write, write_json, write_table
from hff.cli.parsing import Misuse, Parser
from hff.errors import unknown


def main(argv: Sequence[str]) -> None:
    parser = Parser("data", "List the data sets with where they are, or fetch the files of one.")
    parser.add_argument("action", metavar="list|get", help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the data set to get")
    parser.add_argument("--data-dir", type=Path, help="folder of data files (else $HFF_DATA, else the user's cache)")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    given = parser.read(argv)
    if given is None:
        return
    if given.action not in ("list", "get"):
        raise Misuse(str(unknown("action", given.action, ("list", "get"))))
    if (given.action == "get") != (given.name is not None):
        raise Misuse("Say which data set to get: `hff data get NAME`; `hff data list` takes no name.")
    if given.action == "list":
        _list(given.data_dir, given.json)
    else:
        _get(given.name, given.data_dir, given.json)


def _list(data_dir: Path | None, as_json: bool) -> None:
    from hff.data import datasets, status

    entries = [
        {"name": name, **status(name, data_dir), "description": info.description} for name, info in datasets.items()
    ]
    if as_json:
        write_json(entries)
    else:
        header = ("name", "source", "path", "description")
        write_table(header, [[entry[key] for key in header] for entry in entries])


def _get(name: str, data_dir: Path | None, as_json: bool) -> None:
    from hff.data import datasets, get

    if name not in datasets:
        raise Misuse(str(unknown("data set", name, datasets)))
    path = get(name, data_dir)
    if as_json:
        write_json({"name": name, "path": None if path is None else str(path)})
    else:
        write(f"{name} is in {path}" if path else f"{name} needs no files.")
