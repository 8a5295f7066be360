"""`hff bench convergence`: when a target counts as reached, the choice of rates, and what is kept."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hff.bench import convergence
from hff.bench.course import FILE, VALIDATIONS, Course, CourseFile
from hff.bench.figure import draw
from hff.cli import main
from hff.data import load_data

SHORT: dict[str, Any] = {"widths": (32,), "seeds": (0,), "rates": (3e-3,), "epochs": 4, "batch_size": 64}


def test_a_target_must_be_held_at_the_ends_of_three_epochs() -> None:
    ends = [0.9, 0.96, 0.94, 0.95, 0.96, 0.97, 0.98]
    course = Course([a for end in ends for a in (0.5, 0.5, 0.5, end)], [0.25] * 4 * len(ends))
    assert course.epochs_to(0.95) == 6
    assert course.seconds_to(0.95) == 6
    assert course.epochs_to(0.97) is None
    assert course.seconds_to(0.97) is None
    # Between the ends of the epochs, the accuracy was lower.
    assert course.seconds_to_reach(0.95) is None


def test_a_target_is_reached_when_the_following_three_epochs_hold_it() -> None:
    held = [0.95] * (3 * VALIDATIONS + 1)
    course = Course([0.9, 0.96, 0.94, *held], [2.0] * (3 + len(held)))
    assert course.seconds_to_reach(0.95) == 8
    assert course.over(0.95)
    shorter = Course(course.accuracy[:-1], course.seconds[:-1])
    assert shorter.seconds_to_reach(0.95) is None
    assert not shorter.over(0.95)


def test_convergence_on_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(convergence, "TARGETS", (0.5, 1.1))
    result = convergence.bench_convergence(load_data("digits"), ("backprop", "hff"), **SHORT)
    easy = [row for row in result.rows if row["target"] == 0.5]
    assert all(3 <= row["epochs"] <= 4 and 0 < row["seconds_to_reach"] < row["seconds"] for row in easy)
    assert easy[0]["ratio_to_backprop"] == easy[0]["ratio_to_reach"] == 1
    assert all(row["seconds"] is None for row in result.rows if row["target"] == 1.1)
    assert draw(result, tmp_path).exists()


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, float]]:
    """Trainings, in order, that are as good as their rate: the closer to 0.01, the better."""
    begun: list[tuple[str, int, float]] = []

    def train(task: Any, name: str, seed: int, rate: float) -> Iterator[tuple[float, float]]:
        begun.append((name, seed, rate))
        while True:
            yield 1.0, 0.99 - abs(rate - 0.01)

    monkeypatch.setattr(convergence._Task, "train", train)
    return begun


def test_rates_are_tried_with_the_first_seed_and_methods_take_turns(
    trained: list[tuple[str, int, float]],
) -> None:
    flags = {"widths": (8,), "seeds": (3, 4), "rates": (0.01, 0.1)}
    result = convergence.bench_convergence(load_data("digits"), ("backprop", "hff"), **flags)
    trials = [(name, 3, rate) for name in ("backprop", "hff") for rate in (0.01, 0.1)]
    assert trained == trials + [(name, seed, 0.01) for seed in (3, 4) for name in ("backprop", "hff")]
    assert {row["learning_rate"] for row in result.rows} == {0.01}
    assert [row["seconds"] for row in result.rows] == [3 * VALIDATIONS] * 6
    assert [row["seconds_to_reach"] for row in result.rows] == [1] * 6


def test_what_is_finished_is_not_measured_again(
    trained: list[tuple[str, int, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load_data("digits")
    flags: dict[str, Any] = {"widths": (8,), "rates": (0.01,), "folder": tmp_path}
    first = convergence.bench_convergence(data, ("backprop",), seeds=(0,), **flags)
    assert len(trained) == 2
    assert convergence.bench_convergence(data, ("backprop",), seeds=(0,), **flags).rows == first.rows
    assert len(trained) == 2
    # Only what is missing is trained, even if the last line was not written to its end.
    with (tmp_path / FILE).open("a", encoding="utf-8") as file:
        file.write('{"name": "course hff 0')
    convergence.bench_convergence(data, ("backprop", "hff"), seeds=(0, 1), **flags)
    new = [("hff", 0, 0.01), ("hff", 0, 0.01), ("backprop", 1, 0.01), ("hff", 1, 0.01)]
    assert trained[2:] == new
    convergence.bench_convergence(data, ("backprop", "hff"), seeds=(0, 1), **flags)
    assert trained[2:] == new
    # Courses of another network are not taken for those of this one.
    convergence.bench_convergence(data, ("backprop",), seeds=(0,), **{**flags, "widths": (9,)})
    assert len(trained) == 8


def test_a_course_is_kept_as_soon_as_it_is_over(
    trained: list[tuple[str, int, float]], tmp_path: Path
) -> None:
    def stop(text: str) -> None:
        if text.startswith("seed 1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convergence.bench_convergence(
            load_data("digits"), ("backprop",), widths=(8,), rates=(0.01,), folder=tmp_path, report=stop
        )
    lines = (tmp_path / FILE).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["trial backprop 0.01", "course backprop 0 0.01"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(convergence.UserError, match=f"{FILE} cannot be written"):
        CourseFile(tmp_path / "file", {}).keep_trial("hff", 0.1, 0.9)


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--data", "digits", "--methods", "backprop,hff", "--widths", "16", "--seeds", "0"]
    flags += ["--rates", "3e-3", "--epochs", "3", "--out", str(tmp_path)]
    assert main(["bench", "convergence", *flags]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines()[1:])) <= 80
    assert {path.name for path in tmp_path.iterdir()} == {FILE, "convergence.csv", "convergence.png"}
