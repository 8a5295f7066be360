"""The claims of the paper: every number in its tables and text, as printed."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from hff.errors import unknown

_EMPTY = "-"
_PRINTED = re.compile(r"[>≤≈]?(?P<value>\d+(?:\.\d+)?)(?: ± (?P<spread>\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Claim:
    """One number of the paper. `table`, `row` and `column` identify it."""

    table: str
    """The label of the table in the source of the paper; "text" for the running text."""
    row: str
    column: str
    printed: str
    """The number as the paper prints it, such as "97.4" or "98.69 ± 0.04"."""
    value: float
    spread: float | None
    """The standard deviation; None if the paper prints none."""
    unit: str
    method: str
    """The name of the method in the registry."""
    data: str
    network: str | None
    """The name of the network; None if the paper does not state it."""
    note: str
    """What is known to be wrong or odd about the number; usually empty."""


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the order of the tables."""
    text = resources.files(__name__).joinpath("claims.toml").read_text(encoding="utf-8")
    return tuple(claim for table in tomllib.loads(text)["table"] for claim in _read(table))


def find(**wanted: object) -> tuple[Claim, ...]:
    """The claims that match all given fields, such as `find(table="main_result_mlp", method="hff")`."""
    valid = [field.name for field in fields(Claim)]
    for name in wanted:
        if name not in valid:
            raise unknown("field of a claim", name, valid)
    return tuple(
        claim for claim in claims() if all(getattr(claim, name) == value for name, value in wanted.items())
    )


def claimed(method: str, data: str, network: str) -> Claim | None:
    """The claim of the paper's main tables for a method, a data set and a kind of network (MLP or CNN)."""
    kind = "mlp" if network == "mlp" else "cnn"
    found = find(table=f"main_result_{kind}", method=method, data=data)
    return found[0] if found else None


def _read(table: Mapping[str, Any]) -> Iterator[Claim]:
    for row in table["rows"]:
        for index, (column, printed) in enumerate(zip(table["columns"], row["printed"], strict=True)):
            if printed == _EMPTY:
                continue
            value, spread = _number(printed)
            yield Claim(
                table=table["label"],
                row=row["row"],
                column=column,
                printed=printed,
                value=value,
                spread=spread,
                unit=_field("unit", row, table, index),
                method=_field("method", row, table, index),
                data=_field("data", row, table, index),
                network=_field("network", row, table, index),
                note=" ".join(
                    note["note"]
                    for note in table.get("notes", ())
                    if note.get("row", row["row"]) == row["row"] and note.get("column", column) == column
                ),
            )


def _field(name: str, row: Mapping[str, Any], table: Mapping[str, Any], index: int) -> Any:
    """A field of the cell in column `index`, from the row or else from the table; None if neither has it."""
    value = row.get(name, table.get(name))
    return value[index] if isinstance(value, list) else value


def _number(printed: str) -> tuple[float, float | None]:
    match = _PRINTED.fullmatch(printed)
    if match is None:
        raise ValueError(f"{printed!r} in claims.toml is not a number such as '98.69 ± 0.04'")
    return float(match["value"]), float(match["spread"]) if match["spread"] else None
