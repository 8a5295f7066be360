"""The measured numbers in README and docs agree with the files in results/."""

import csv
import re
import statistics
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

from hff.methods import methods
from hff.recipes import recipes

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
TABLES = ["accuracy.csv", "cifar10_gap.csv"]
"""The tables of which each row has the command that trained it."""


def rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def measured() -> dict[str, str]:
    """Mean and sample standard deviation of the test accuracy over seeds, as text, by experiment."""
    by_experiment: dict[str, list[float]] = defaultdict(list)
    for row in rows("accuracy.csv"):
        by_experiment[row["experiment"]].append(float(row["test_accuracy"]))
    return {
        name: f"{statistics.fmean(values):.2f}"
        + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")
        for name, values in by_experiment.items()
    }


def test_the_readme_has_the_measured_numbers() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Results")[2].partition("\n## ")[0]
    known = measured()
    lines = re.findall(
        r"^\| [^|]+ \| ([\d.± ]+?) \| ([\d.± ]+?) \| ([\d,]+) \(([\d,]+)\) \| ([\d,]+) "
        r"\| `(\w+)` / `(\w+)` \|$",
        section,
        re.MULTILINE,
    )
    assert len(lines) >= 3
    counts = {
        row["experiment"]: [f"{int(row[key]):,}" for key in ("prediction_parameters", "parameters")]
        for row in rows("accuracy.csv")
    }
    for hff, backprop, predicting, training, of_backprop, experiment, rival in lines:
        assert (hff, backprop) == (known[experiment], known[rival])
        assert [predicting, training] == counts[experiment]
        assert [of_backprop, of_backprop] == counts[rival]
        assert {experiment, rival} <= set(recipes())


def test_every_table_of_accuracies_has_the_parameters() -> None:
    tables = ("accuracy.csv", "rivals.csv", "cifar10_gap.csv", "comparison.csv")
    for name in tables:
        for row in rows(name):
            assert 0 < int(row["prediction_parameters"]) <= int(row["parameters"])
    for page, mark in (
        ("docs/methods.md", "overview"),
        ("docs/methods.md", "gaps"),
        ("README.md", "comparison"),
    ):
        text = (ROOT / page).read_text(encoding="utf-8")
        header = text.partition(f"<!-- {mark} -->\n")[2].partition("\n")[0]
        assert "| parameters | in training |" in header


@pytest.mark.parametrize("name", TABLES)
def test_the_parameters_follow_from_the_command_of_the_row(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    with_counts = import_module("parameters").with_counts
    for row in rows(name)[::7]:
        assert {key: str(value) for key, value in with_counts(row).items()} == row


@pytest.mark.parametrize("name", ["accuracy.csv", "tuning.csv"])
def test_every_row_has_its_command_and_environment(name: str) -> None:
    for row in rows(name):
        assert row["command"].startswith("hff train ")
        assert all(row[key] for key in ("seed", "epochs", "hff", "torch", "processor", "threads", "date"))


def test_curves_and_accuracies_are_of_the_same_runs() -> None:
    known = {(row["experiment"], row["seed"]): int(row["epochs"]) for row in rows("accuracy.csv")}
    last: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows("curves.csv"):
        key = row["experiment"], row["seed"]
        last[key] = max(last[key], int(row["epoch"]))
    assert last == known


def test_the_gaps_are_differences_to_backprop_in_the_same_setting() -> None:
    found = rows("cifar10_gap.csv")
    compared = {row["method"] for row in found}
    assert compared == {"fa", "dfa", "ssdfa", "hebb", "softhebb", "equilibrium_prop", "predictive_coding"}
    for row in found:
        gap = float(row["backprop"]) - float(row["test_accuracy"])
        assert float(row["gap"]) == pytest.approx(gap, abs=0.006)
        if row["cited"]:
            cited = float(row["cited_backprop"].split()[0]) - float(row["cited"].split()[0])
            assert float(row["cited_gap"]) == pytest.approx(cited, abs=0.006)
        assert row["training_samples"] == "10000"
        # The network, images and budget are the same; only the method and its learning rate differ.
        own, reference = (_shared_flags(row[key]) for key in ("command", "backprop_command"))
        assert own == reference


def _shared_flags(command: str) -> dict[str, str]:
    words = command.split()[3:]
    flags = dict(zip(words[::2], words[1::2], strict=True))
    return {
        flag: value
        for flag, value in flags.items()
        if not flag.startswith("--method.") and flag not in ("--learning-rate", "--name")
    }


def test_the_methods_page_has_the_gaps() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    table = page.partition("<!-- gaps -->\n")[2].partition("<!-- end of gaps -->")[0]
    found = rows("cifar10_gap.csv")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(lines) == len(found)
    for row in found:
        numbers = [row["test_accuracy"], row["backprop"], row["gap"]]
        assert any(line[0].startswith(f"`{row['method']}`") and line[3:6] == numbers for line in lines)


def test_the_readme_shows_the_comparison_of_all_methods() -> None:
    found = rows("comparison.csv")
    assert {row["method"] for row in found} == set(methods)
    assert all("--data fashion_mnist --budget 60s" in row["command"] for row in found)
    assert all(row[key] for row in found for key in ("seed", "hff", "torch", "processor", "threads", "date"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("<!-- comparison -->\n")[2].partition("<!-- end of comparison -->")[0]
    assert "(results/comparison.png)" in text
    assert (RESULTS / "comparison.png").stat().st_size > 10_000
    header, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    shown = {cells["method"]: cells for cells in (dict(zip(header, line, strict=True)) for line in lines)}
    assert len(lines) == len(shown) == len(found)
    for row in found:
        cells = shown[row["method"]]
        assert cells[""] == row["rank"]
        for column, key in {"validation %": "validation_accuracy", "test %": "test_accuracy"}.items():
            assert cells[column].split()[0] == f"{float(row[key]):.2f}"


def test_the_readme_has_the_measured_ratios_of_a_step() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    measured = {
        (row["network"], row["threads"]): "{ratio_to_backprop:.2f} ({ratio_to_backprop_low:.2f}-"
        "{ratio_to_backprop_high:.2f})".format(
            **{k: float(v) for k, v in row.items() if k.startswith("ratio_to_b")}
        )
        for row in rows("bench/step.csv")
        if row["method"] == "hff"
    }
    for network in {network for network, _ in measured}:
        shown = network.replace("mlp", "MLP").replace("cnn", "CNN").replace("3x", "3 x ")
        assert f"| {shown} | {measured[network, '1']} | {measured[network, '2']} |" in text
