"""`hff eval --early-exit`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hff.cli import main

Answer = Callable[[list[str]], Any]


def test_eval_reports_early_exit(run: Path, answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(["eval", str(run), "--early-exit", "0.8"])
    assert (result["run"], result["split"], result["samples"]) == (str(run), "test", 360)
    assert result["early_exit"]["threshold"] == 0.8
    assert set(result["shares"]) == {"0", "1"}
    assert [speed["batch_size"] for speed in result["speeds"]] == [1, 256]
    assert main(["eval", "--early-exit", str(run), "--epsilon", "0.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "predicts"]
    assert lines[4].startswith("test: ")
    assert lines[-1] == "guarantee: with probability 95.00 %, the loss of accuracy is at most 10.00 %"
    assert max(map(len, lines)) <= 80
    # 144 validation digits are too few for half a point.
    with pytest.warns(UserWarning, match="115 calibration samples are too few"):
        assert main(["eval", str(run), "--early-exit"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "threshold: none passed, so the full network predicts all samples"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--early-exit=high"], "takes a probability between 0 and 1, or no value, not 'high'"),
        (["--early-exit", "1.5"], "takes a probability between 0 and 1, or no value, not '1.5'"),
        (["--epsilon", "0.01"], "--epsilon needs --early-exit without a threshold; add it, or remove"),
        (["--early-exit", "0.9", "--delta", "0.1"], "--delta needs --early-exit without a threshold"),
        (["--early-exit", "--delta", "2"], "--delta must be between 0 and 1, not 2"),
    ],
)
def test_flags_of_early_exit_that_do_not_fit_are_refused(
    run: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(run), *flags]) == 2
    assert message in capsys.readouterr().err


def test_early_exit_of_several_seeds_is_refused(group: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(group), "--early-exit"]) == 2
    assert "contains runs with several seeds; choose one of them" in capsys.readouterr().err
