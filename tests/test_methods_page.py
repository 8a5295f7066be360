"""docs/methods.md has a section of a fixed form for every method, and its tables match code and results."""

import csv
import re
from pathlib import Path

from hff.config import fields_of, shown
from hff.methods import methods

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
PARTS = ["Paper", "Idea", "Rule", "Cost", "Measured and claimed", "Caveats"]
RIVALS = ROOT / "results" / "rivals.csv"


def section(name: str) -> str:
    found = re.findall(rf"^## .*\(`{name}`\)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{name} has {len(found)} sections"
    return str(found[0])


def measured() -> dict[tuple[str, str], dict[str, str]]:
    with RIVALS.open(newline="") as file:
        return {(row["subject"], row["data"]): row for row in csv.DictReader(file)}


def test_every_method_has_all_parts_in_order() -> None:
    for name in methods:
        assert re.findall(r"^\*\*(.+?)\.\*\*", section(name), re.MULTILINE) == PARTS, name


def test_the_options_are_those_of_the_code() -> None:
    for name, method in methods.items():
        lines = re.findall(r"^\| `(\w+)` \| (.*?) \|", section(name), re.MULTILINE)
        assert lines == [(field.name, shown(field.default)) for field in fields_of(method)], name


def test_every_method_has_its_measurements_on_both_data_sets() -> None:
    found = measured()
    for name in methods:
        line = section(name).partition(f"<!-- measured:{name} -->")[2].partition("\n")[0]
        for data in ("mnist", "fashion_mnist"):
            row = found[name, data]
            costs = ("seconds_per_epoch", "peak_memory_mb", "seconds_per_10000_predictions")
            assert all(row[key] for key in costs), name
            assert row["test_accuracy"] in line, name
            assert row["claimed"] in line, name


def test_the_overview_has_the_measured_numbers() -> None:
    table = PAGE.partition("<!-- overview -->\n")[2].partition("<!-- end of overview -->")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    subjects = {subject for subject, _ in measured()}
    assert len(lines) == len(subjects) >= len(methods)
    for subject in subjects:
        mnist, fashion = (measured()[subject, data] for data in ("mnist", "fashion_mnist"))
        (line,) = [
            line
            for line in lines
            if line[:3] == [f"`{mnist['method']}`", mnist["network"], mnist["test_accuracy"]]
        ]
        assert line[4] == fashion["test_accuracy"]


def test_all_methods_have_the_same_budget() -> None:
    assert len({row["epochs"] for row in measured().values()}) == 1
    assert all("--batch-size 128" in row["command"] for row in measured().values())
