"""Run groups: one experiment with several seeds."""

import json
from pathlib import Path
from typing import Any

import pytest

from hff.errors import UserError
from hff.experiment import Experiment
from hff.run_group import RunGroup, spread
from hff.training import Listener, Run

TINY = Experiment.from_mapping({"network": {"name": "mlp", "widths": [16, 16]}, "epochs": 1})


class StopAfterFirstEpoch(Listener):
    def epoch_ended(self, record: dict[str, Any]) -> None:
        raise KeyboardInterrupt


def test_a_group_is_trained_and_evaluated_with_mean_and_spread(tmp_path: Path) -> None:
    group = RunGroup.create(tmp_path, TINY, (3, 5))
    assert RunGroup.exists(tmp_path)
    summary = group.train(device="cpu")
    runs = group.runs()
    assert list(runs) == summary["seeds"] == [3, 5]
    assert runs[5].config["seed"] == 5
    singles = [run.summary() for run in runs.values()]
    accuracies = [single["validation_accuracy"]["1"] for single in singles if single]
    std = abs(accuracies[0] - accuracies[1]) / 2**0.5
    assert summary["validation_accuracy"]["1"] == pytest.approx({"mean": sum(accuracies) / 2, "std": std})

    result = group.evaluate("validation", device="cpu")
    singles = [run.evaluation("validation") for run in runs.values()]
    mean = sum(single["accuracy"] for single in singles if single) / 2
    assert result["accuracy"]["mean"] == pytest.approx(mean)
    assert result["seeds"] == [3, 5]
    assert "confusion" not in result
    assert json.loads((tmp_path / "eval-validation.json").read_text()) == result


def test_resuming_a_group_trains_only_what_is_missing(tmp_path: Path) -> None:
    group = RunGroup.create(tmp_path, TINY, (0, 1))
    with pytest.raises(KeyboardInterrupt):
        group.train(device="cpu", listener=lambda seed: StopAfterFirstEpoch() if seed == 1 else Listener())
    before = (tmp_path / "seed-0" / "summary.json").stat().st_mtime_ns
    RunGroup.open(tmp_path).train(device="cpu")
    assert (tmp_path / "seed-0" / "summary.json").stat().st_mtime_ns == before
    assert all(run.finished for run in group.runs().values())


def test_a_group_of_an_older_version_is_opened(tmp_path: Path) -> None:
    group = RunGroup.create(tmp_path, TINY, (0,))
    saved = json.loads((tmp_path / "seeds.json").read_text())
    saved["config"]["schedule"] = saved["config"].pop("lr_schedule")
    (tmp_path / "seeds.json").write_text(json.dumps(saved))
    assert group.experiment == TINY


def test_repeated_seeds_a_folder_in_use_and_a_folder_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not contain runs with several seeds"):
        RunGroup.open(tmp_path)
    with pytest.raises(UserError, match="each seed once"):
        RunGroup.create(tmp_path, TINY, (1, 1))
    group = RunGroup.create(tmp_path, TINY, (1, 2))
    with pytest.raises(UserError, match="has been started yet"):
        group.evaluate()
    RunGroup.create(tmp_path, TINY, (2,)).train(device="cpu")
    with pytest.raises(UserError, match="already contains runs"):
        RunGroup.create(tmp_path, TINY, (3,))
    with pytest.raises(UserError, match="already contains runs"):
        RunGroup.create(Run.open(tmp_path / "seed-2").folder, TINY, (3,))


def test_spread_combines_numbers_and_keeps_what_is_equal() -> None:
    results = [
        {"a": 1.0, "b": {"0": 0.5}, "n": 3, "m": 1, "word": "x", "seed": 1, "list": [1.0], "gone": 1},
        {"a": 3.0, "b": {"0": 0.5}, "n": 3, "m": 2, "word": "y", "seed": 1, "list": [2.0]},
    ]
    assert spread(results) == {
        "a": {"mean": 2.0, "std": pytest.approx(2**0.5)},
        "b": {"0": {"mean": 0.5, "std": 0.0}},
        "n": 3,
        "m": {"mean": 1.5, "std": pytest.approx(0.5**0.5)},
        "seed": 1,
        "list": [{"mean": 1.5, "std": pytest.approx(0.5**0.5)}],
    }
    assert spread([{"a": 1.0}]) == {"a": {"mean": 1.0, "std": None}}


@pytest.mark.parametrize(
    "content", ["{", '{"seeds": [], "config": {}}', '{"seeds": ["a"], "config": {}}', '{"seeds": [1, 1]}']
)
def test_a_damaged_list_of_seeds_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "seeds.json").write_text(content)
    with pytest.raises(UserError, match=r"seeds\.json (is damaged|cannot be read)"):
        RunGroup(tmp_path).runs()


def test_two_processes_cannot_train_one_group(tmp_path: Path) -> None:
    first, second = RunGroup.create(tmp_path, TINY, (3,)), RunGroup(tmp_path)
    with first.lock, pytest.raises(UserError, match="Another process is writing to"):
        second.train(device="cpu")


def test_more_epochs_train_every_run_on(tmp_path: Path) -> None:
    group = RunGroup.create(tmp_path, TINY, (3, 5))
    group.train(device="cpu")
    summary = group.train(device="cpu", epochs=2)
    assert summary["epochs"] == 2
    assert group.experiment.training.epochs == 2
    assert [len(run.metrics()) for run in group.runs().values()] == [2, 2]
