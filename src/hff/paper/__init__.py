"""What the paper claims: every number of its tables and text, as printed, to hold measured ones against."""

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
    """One number of the paper and where it stands; `table`, `row` and `column` name it uniquely."""

    table: str
    """Label of the table in the source of the paper; "text" for the running text."""
    row: str
    column: str
    printed: str
    """The number as the paper prints it, such as "97.4" or "98.69 ± 0.04"."""
    value: float
    spread: float | None
    """Standard deviation; None where none is printed."""
    unit: str
    method: str | None
    """Name in the registry of methods; None for a rule that is not one of the compared."""
    data: str
    network: str | None
    """None where the paper does not say which."""
    note: str
    """What is known to be wrong or odd about the number; empty as a rule."""


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, table by table."""
    text = resources.files(__name__).joinpath("claims.toml").read_text(encoding="utf-8")
    return tuple(claim for table in tomllib.loads(text)["table"] for claim in _read(table))


def find(**facts: object) -> tuple[Claim, ...]:
    """The claims that agree with all facts, such as `find(table="main_result_mlp", method="hff")`."""
    valid = [field.name for field in fields(Claim)]
    for name in facts:
        if name not in valid:
            raise unknown("fact of a claim", name, valid)
    return tuple(
        claim for claim in claims() if all(getattr(claim, name) == fact for name, fact in facts.items())
    )


def claimed(method: str, data: str, network: str) -> Claim | None:
    """What the paper's main tables claim for a method on that data with that kind of network."""
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
                unit=_fact("unit", row, table, index),
                method=_fact("method", row, table, index),
                data=_fact("data", row, table, index),
                network=_fact("network", row, table, index),
                note=" ".join(
                    note["note"]
                    for note in table.get("notes", ())
                    if note.get("row", row["row"]) == row["row"] and note.get("column", column) == column
                ),
            )


def _fact(name: str, row: Mapping[str, Any], table: Mapping[str, Any], index: int) -> Any:
    """What the row says, or else the table, of the column at `index`; None where neither speaks."""
    said = row.get(name, table.get(name))
    return said[index] if isinstance(said, list) else said


def _number(printed: str) -> tuple[float, float | None]:
    match = _PRINTED.fullmatch(printed)
    if match is None:
        raise ValueError(f"{printed!r} in claims.toml is no number such as '98.69 ± 0.04'")
    return float(match["value"]), float(match["spread"]) if match["spread"] else None
