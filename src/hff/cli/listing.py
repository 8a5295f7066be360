"""`hff list`: the available methods, networks, data sets and recipes."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from hff.cli.output import write_json, write_table
from hff.cli.parsing import Parser, UsageError
from hff.errors import unknown


def main(argv: Sequence[str]) -> None:
    parser = Parser("list", "List the available methods, networks, data sets or recipes.")
    parser.add_argument("what", metavar="|".join(LISTS), help="what to list")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.read(argv)
    if given is None:
        return
    if given.what not in LISTS:
        raise UsageError(str(unknown("list", given.what, LISTS)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        entries = LISTS[given.what]()
    # A package whose method, network or data set cannot be loaded does not break the list.
    for warning in caught:
        sys.stderr.write(f"hff: {warning.message}\n")
    if given.json:
        write_json(entries)
    else:
        header = list(entries[0])
        rows = [[_words(entry[key]) for key in header] for entry in entries]
        write_table(header, rows, optional=OPTIONAL)


def _methods() -> list[dict[str, Any]]:
    from hff.methods import methods

    return [
        {
            "name": name,
            "title": method.info.title,
            "passes": method.info.passes,
            "negatives": method.info.needs_negatives,
            "gradient reach": method.info.gradient_reach,
            "signal from above": method.info.top_signal,
            "trains": "any" if method.info.supports == "any" else sorted(method.info.supports),
            "paper": method.info.paper,
        }
        for name, method in sorted(methods.working().items())
    ]


def _networks() -> list[dict[str, Any]]:
    import inspect

    from hff.networks import networks

    return [
        {"name": name, "description": (inspect.getdoc(table) or "").partition("\n")[0]}
        for name, table in networks.working().items()
    ]


def _datasets() -> list[dict[str, Any]]:
    from hff.data import datasets

    return [
        {
            "name": name,
            "classes": info.classes,
            "input": info.in_shape,
            "train": info.train_size,
            "test": info.test_size,
            "license": info.license,
            "description": info.description,
        }
        for name, info in datasets.working().items()
    ]


def _recipes() -> list[dict[str, Any]]:
    from hff.recipes import recipes

    return [{"name": name, "description": text} for name, text in recipes().items()]


OPTIONAL = ("paper", "signal from above", "passes", "negatives", "license", "trains", "gradient reach")
"""Columns that are left out if the table is too wide, in this order."""
LISTS = {"methods": _methods, "networks": _networks, "datasets": _datasets, "recipes": _recipes}


def _words(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return ", ".join(value) if isinstance(value, list) else value
