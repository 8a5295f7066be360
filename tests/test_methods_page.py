"""docs/methods.md has one block of a fixed form for every method, and its tables match code and results."""

import csv
import re
from pathlib import Path

import pytest

from hff.config import fields_of, shown
from hff.methods import methods

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
PARTS = ["Paper", "Idea", "Rule", "Cost", "Measured and claimed", "Caveats"]
RIVALS = ROOT / "results" / "rivals.csv"


def block(name: str) -> str:
    found = re.findall(rf"^## .*\(`{name}`\)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{name} has {len(found)} blocks"
    return str(found[0])


def measured() -> dict[tuple[str, str], dict[str, str]]:
    with RIVALS.open(newline="") as file:
        return {(row["subject"], row["data"]): row for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", methods)
def test_every_method_has_all_parts_in_order(name: str) -> None:
    assert re.findall(r"^\*\*(.+?)\.\*\*", block(name), re.MULTILINE) == PARTS


@pytest.mark.parametrize("name", methods)
def test_the_options_are_those_of_the_code(name: str) -> None:
    lines = re.findall(r"^\| `(\w+)` \| (.*?) \|", block(name), re.MULTILINE)
    assert lines == [(field.name, shown(field.default)) for field in fields_of(methods[name])]


@pytest.mark.parametrize("name", methods)
def test_every_method_was_measured_on_both_data_sets_and_the_page_says_it(name: str) -> None:
    for data in ("mnist", "fashion_mnist"):
        row = measured()[name, data]
        assert row["seconds_per_epoch"]
        assert row["peak_memory_mb"]
        assert row["seconds_per_10000_predictions"]
        line = block(name).partition(f"<!-- measured:{name} -->")[2].partition("\n")[0]
        assert row["test_accuracy"] in line
        assert row["claimed"] in line


def test_the_overview_gives_the_measured_numbers() -> None:
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


def test_all_were_given_the_same_budget() -> None:
    assert len({row["epochs"] for row in measured().values()}) == 1
    assert all("--batch-size 128" in row["command"] for row in measured().values())
