"""What the README says was measured is what results/ holds."""

import csv
import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


def rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def measured() -> dict[str, str]:
    """experiment -> mean and sample standard deviation of the test accuracy over seeds, in words."""
    by_experiment: dict[str, list[float]] = defaultdict(list)
    for row in rows("accuracy.csv"):
        by_experiment[row["experiment"]].append(float(row["test_accuracy"]))
    return {
        name: f"{statistics.fmean(values):.2f}"
        + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")
        for name, values in by_experiment.items()
    }


def test_the_readme_gives_the_measured_numbers() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Measured")[2].partition("\n## ")[0]
    known = measured()
    lines = re.findall(
        r"^\| .*?\| ([\d.± ]+?) \| ([\d.± ]+?) \| `(\w+)` / `([\w-]+)` \|", section, re.MULTILINE
    )
    assert len(lines) >= 3
    for hff, backprop, experiment, rival in lines:
        assert hff == known[experiment]
        assert backprop == known[rival]


@pytest.mark.parametrize("name", ["accuracy.csv", "tuning.csv"])
def test_every_row_says_how_it_was_measured(name: str) -> None:
    for row in rows(name):
        assert row["command"].startswith("hff train ")
        assert all(row[key] for key in ("seed", "epochs", "hff", "torch", "processor", "threads", "date"))


def test_the_last_epoch_of_a_curve_belongs_to_a_measured_run() -> None:
    known = {(row["experiment"], row["seed"]): int(row["epochs"]) for row in rows("accuracy.csv")}
    last: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows("curves.csv"):
        key = row["experiment"], row["seed"]
        last[key] = max(last[key], int(row["epoch"]))
    assert last == known
