"""Results of benchmarks: medians with intervals, rows, and the machine that they are from."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hff.training.run import environment

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Median:
    """A median with its 95 % interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def median(values: Sequence[float]) -> Median:
    """The median of values, with an interval that assumes nothing about their distribution.

    The interval is between two order statistics. With fewer than 6 values it is the whole range, which covers
    the true median with less than 95 % probability.
    """
    ordered = sorted(values)
    count = len(ordered)
    cut = 0
    # The chance that the true median lies outside of the values from `cut` to `-1 - cut`.
    while 2 * sum(math.comb(count, k) for k in range(cut + 2)) / 2**count <= 1 - CONFIDENCE:
        cut += 1
    return Median(statistics.median(ordered), ordered[cut], ordered[-1 - cut])


def ratio(values: Sequence[float], others: Sequence[float]) -> Median:
    """The median ratio of values to those of the same rounds."""
    return median([value / other for value, other in zip(values, others, strict=True)])


@dataclass(frozen=True)
class BenchResult:
    """The rows of a benchmark. All absolute times are of this machine; compare ratios only."""

    name: str
    rows: tuple[dict[str, Any], ...]
    machine: dict[str, Any] = field(default_factory=environment)

    def to_json(self) -> dict[str, Any]:
        """The result as a dictionary of lists and numbers."""
        rows = [{k: asdict(v) if isinstance(v, Median) else v for k, v in row.items()} for row in self.rows]
        return {"bench": self.name, "rows": rows, "machine": self.machine}

    def to_csv(self) -> str:
        """The rows as CSV text; a median takes three columns."""
        names = ("processor", "hff", "torch", "command")
        machine = {name: self.machine[name] for name in names} | {"date": self.machine["started"][:10]}
        flat = [_flat(row) | machine for row in self.rows]
        columns = list(dict.fromkeys(name for row in flat for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return text.getvalue()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Median):
            parts = {name: value.median, f"{name}_low": value.low, f"{name}_high": value.high}
            flat |= {key: f"{part:.4g}" for key, part in parts.items()}
        else:
            flat[name] = f"{value:.4g}" if isinstance(value, float) else value
    return flat
