"""`hff compare` from the command line."""

import errno
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from hff.cli import main
from hff.cli.compare import OPTIONAL_COLUMNS, seconds, table_of
from hff.cli.parsing import UsageError
from hff.comparison import MethodResult
from hff.methods import Group

Answer = Callable[[list[str]], Any]
SMALL = ["--network", "mlp", "--network.widths", "16,12", "--data.limit", "200", "--batch-size", "64"]
TINY = ["compare", *SMALL, "--methods", "sff,backprop", "--epochs", "1"]


@pytest.fixture(autouse=True)
def known_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring memory starts a process, which is slow and tested elsewhere."""
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 12_300_000)


def test_it_estimates_the_time_then_trains_and_shows_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*TINY[:-2], "--budget", "0.05s"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0] == "2 methods on digits (limit 200), mlp: 0.05 s of training each, batches of 64, seed 0"
    assert lines[1:4] == [
        "protocol 1",
        "each method gets the network in the form that it declares",
        "each method has the learning rate that it declares",
    ]
    assert re.match(
        r"about \d+ s left: 0 s training, \d+ s validation and test, \d+ s measuring mem", lines[4]
    )
    assert re.match(r"1/2  sff       mlp 16-12 +\d+\.\d\d % on validation, 0\.\d s, ", lines[6])
    header = next(line for line in lines if "claimed %" in line)
    for column in ("validation %", "test %", "parameters", "MB"):
        assert column in header
    assert max(map(len, lines[1:])) <= 80
    assert [line.strip() for line in lines if line.strip() in ("strictly local", "backprop")]
    folder = Path("runs/compare-digits-mlp-0.05s-seed0")
    expected = f"The table and the run of each method are in {folder}:"
    assert f"{expected}\n  comparison.csv, comparison.md, comparison.png\n" in printed
    assert sorted(path.name for path in folder.iterdir()) == [
        "backprop", "comparison.csv", "comparison.md", "comparison.png", "settings.json", "sff",
    ]  # fmt: skip
    config = yaml.safe_load((folder / "sff" / "config.yaml").read_text())
    assert (config["seconds"], config["batch_size"], config["data"]["limit"]) == (0.05, 64, 200)

    assert main([*TINY[:-2], "--budget", "0.05s"]) == 0
    again = capsys.readouterr().out.splitlines()
    assert again[4] == "all methods are already trained"
    assert again[-1] == lines[-1]
    assert main(["eval", str(folder / "sff"), "--split", "validation"]) == 0


def test_json_output_and_resuming(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    first = answer([*TINY, "--out", "here"])
    assert [result["method"] for result in first["results"]] == [
        result["method"]
        for result in sorted(first["results"], key=lambda result: -result["validation_accuracy"])
    ]
    assert first["folder"] == "here"
    assert first["epochs"] == 1
    assert first["figure"] == "here/comparison.png"
    assert answer(["compare", "--resume", "here"]) == first
    assert main([*TINY, "--out", "here", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_seeds_rates_and_options_of_methods(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["compare", *SMALL, "--methods", "dfa,hff:temperature=5", "--epochs", "1", "--budget", "9s"]
    argv += ["--rates", "0.003,0.01", "--seeds", "2", "--same-network"]
    found = answer(argv)
    assert found["folder"] == "runs/compare-digits-mlp-same-network-rates-9s-1epochs-seed0"
    assert (found["protocol"], found["seeds"], found["rates"]) == (1, 2, [0.003, 0.01])
    assert {row["method"]: (row["form"], row["seeds"], row["trials"]) for row in found["results"]} == {
        "dfa": ("bare", 2, 2),
        "hff:temperature=5": ("bare", 2, 2),
    }
    assert len(found["trials"]) == 4
    assert main(["compare", "--resume", found["folder"]]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert re.match(r"dfa +rate 0\.0\d+ of 0\.003 to 0\.01, \d+\.\d\d % after a trial", lines[7])
    assert re.match(r"4/4  hff:temperature=5  seed 1 +\d+\.\d\d % on validation, ", lines[12])
    assert re.search(r"^[1-2](-2)? +dfa +\d+\.\d\d ± \d+\.\d\d ", printed, re.MULTILINE)
    named = next(number for number, line in enumerate(lines) if found["folder"] in line)
    assert max(map(len, lines[1:named])) <= 80
    assert "\nhff:temperature=5 has its best rate, 0.01, at the edge of 2 trials.\n" in printed
    assert "trials.csv" in lines[-1]


def test_a_summary_without_an_accuracy_does_not_break_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--out", "here", "--quiet"]) == 0
    Path("here/sff/summary.json").write_text("{}")
    assert main(["compare", "--resume", "here"]) == 0
    assert "accuracy unknown" in capsys.readouterr().out


def test_unsupported_methods_are_listed_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *SMALL, "--methods", "backprop,cwconv", "--epochs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "\ncwconv is left out: Channel-wise Competitive Learning" in printed


def test_an_interrupt_prints_the_command_that_resumes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("hff.comparison.compare.train", interrupt)
    assert main([*TINY, "--out", "here"]) == 130
    assert capsys.readouterr().err == "hff: Interrupted; resume with `hff compare --resume here`.\n"


def test_a_full_disk_leaves_a_comparison_that_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = os.fsync
    for room in (6, 21):  # the slow tests try every write
        calls = iter(range(1000))

        def full(handle: int, calls: Any = calls, room: int = room) -> None:
            if next(calls) >= room:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        folder = f"here-{room}"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            code = main([*TINY, "--out", folder])
        error = capsys.readouterr().err
        assert (code, error.count("\n")) == (1, 1) or not error
        assert not [path for path in Path(folder).rglob("*") if path.is_file() and not path.stat().st_size]
        assert main([*TINY, "--out", folder, "--quiet"]) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--methods", "hff,bakprop"], "Unknown method 'bakprop'; did you mean 'backprop'?"),
        (["--budget", "soon"], "--budget must be a time such as 90s, 5m or 1h, not 'soon'."),
        (["--budget", "0s"], "--budget must be a time such as 90s, 5m or 1h, not '0s'."),
        (
            ["--rates", "search", "--learning-rate", "0.1"],
            "Give either a learning rate for all methods, or rates to try, not both.",
        ),
        (
            ["--rates", "fast"],
            "rates must be declared, search, or different positive numbers such as 0.001,0.003, not "
            "['fast'].",
        ),
        (["--seeds", "0"], "seeds must be at least 1, not 0."),
        (
            ["--methods", "hff:temprature=5"],
            "Unknown parameter of method 'hff': 'temprature'; did you mean 'temperature'?",
        ),
        (
            ["--methods", "hff:cold"],
            "Options of a method are given as in hff:temperature=5:lse=mean, not as 'hff:cold'.",
        ),
        (["--epochs", "0"], "epochs must be at least 1, not 0."),
        (
            ["--network.widths", "3"],
            "--network.widths needs its network: add --network NAME.",
        ),
        (["--network", "mpl"], "Unknown network 'mpl'; did you mean 'mlp'?"),
        (["--data", "digit"], "Unknown data set 'digit'; did you mean 'digits'?"),
        (["--data.limits", "3"], "Unknown flag '--data.limits'; did you mean '--data.limit'?"),
        (["--resume", "nowhere"], "nowhere does not contain a comparison: it has no settings.json."),
        (["--resume", "x", "--seed", "3"], "--resume takes all settings from the folder; remove 'seed'."),
        (["--network", "vgg11"], "Network 'vgg11' needs images of 32x32 pixels or more, not 8x8."),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_trained(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *argv]) == 2
    assert capsys.readouterr().err == f"hff: {message}\n"
    assert not Path("runs").exists()


def test_without_matplotlib_only_the_figure_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*TINY, "--out", "here"]) == 0
    printed = capsys.readouterr().out
    assert "pip install matplotlib" in printed.splitlines()[-1]
    assert Path("here/comparison.csv").exists()
    assert not Path("here/comparison.png").exists()


@pytest.mark.parametrize(("width", "without"), [(220, 0), (160, 2), (100, 6), (80, 9)])
def test_a_narrow_terminal_drops_optional_columns(width: int, without: int) -> None:
    facts = (90.12, 89.34, "89.96 ± 0.10", 600.0, 10.5, 60.1, 123.4, 10, 13.5, 10_000, 9_000, 1e-3, None)
    form = "activation gelu"
    results = [
        MethodResult("predictive_coding", "Predictive Coding", Group.FEEDBACK, "cnn 30-60", form, *facts)
    ]
    table = table_of(results, width)
    headers = [str(column.header) for column in table.columns]
    assert set(OPTIONAL_COLUMNS) - set(headers) >= set(OPTIONAL_COLUMNS[:without])
    assert {"method", "validation %", "test %", "claimed %", "parameters"} <= set(headers)
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    assert "…" not in text.getvalue()
    # The group is a column, or a headline of its own.
    assert len(text.getvalue().splitlines()) == (2 if "group" in headers else 3)
    assert max(map(len, text.getvalue().splitlines())) <= width


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("1.5s", 1.5), ("2m", 120), ("2 min", 120), ("1h", 3600)]
)
def test_budgets_are_parsed(text: str, value: float) -> None:
    assert seconds(text) == value
    with pytest.raises(UsageError):
        seconds(f"-{text}")
