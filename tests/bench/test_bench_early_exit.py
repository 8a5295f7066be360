"""The report on early exit of a run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import hff
from hff.bench.early_exit import early_exit_report, exit_speed
from hff.data import load_data
from hff.errors import UserError
from hff.evaluation import EarlyExit
from hff.experiment import Experiment, train
from hff.methods import create_method
from hff.methods.early_exit import Guarantee
from hff.networks import create_network
from hff.trained import load_method
from hff.training import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with enough validation samples for epsilon 0.02."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    mapping = {
        "data": {"name": "digits", "validation": 600},
        "network": {"name": "mlp", "widths": [64, 64, 64]},
        "epochs": 8,
        "batch_size": 32,
    }
    train(Experiment.from_mapping(mapping), folder, device="cpu")
    return Run.open(folder)


def test_the_report_of_a_run_and_its_saved_thresholds(run: Run) -> None:
    assert load_method(run).early_exit is None
    report = early_exit_report(run, epsilon=0.02, device="cpu", batch_sizes=(1, 32))
    result = report.evaluation
    assert (result.split, result.samples, list(result.shares)) == ("test", 360, [0, 1, 2])
    assert result.accuracy > result.full_accuracy - 0.02
    assert result.shares[0] > 0.5
    assert [speed.batch_size for speed in report.speeds] == [1, 32]
    assert all(min(s.full_seconds, s.early_seconds, s.speed_up) > 0 for s in report.speeds)
    assert json.loads(json.dumps(report.to_json()))["accuracy"] == result.accuracy
    # The thresholds are now those of the run.
    method = load_method(run)
    assert method.early_exit == report.early_exit
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(method.predict(x, early_exit=True), method.predict(x, early_exit=report.early_exit))


def test_training_for_more_epochs_removes_the_saved_thresholds(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    copy = Run.open(tmp_path / "run")
    copy.save_early_exit(EarlyExit({0: 0.9}, {0: 1.5}, Guarantee(0.02, 0.05, 480, 1, 4)))
    assert copy.early_exit == EarlyExit({0: 0.9}, {0: 1.5}, Guarantee(0.02, 0.05, 480, 1, 4))
    copy.reopen(copy.config)
    assert copy.early_exit is None


def test_a_plain_threshold_uses_the_calibrated_probabilities_of_the_run(run: Run) -> None:
    report = hff.early_exit_report(run.folder, 0.9, device="cpu", split="validation", batch_sizes=(8,))
    assert report.early_exit.guarantee is None
    assert run.calibration is not None
    assert report.early_exit.scales == run.calibration.layers
    assert report.evaluation.samples == 600


def test_new_data_is_evaluated_with_the_thresholds_of_the_own_data(run: Run, tmp_path: Path) -> None:
    test = load_data("digits").test
    assert test is not None
    stored = test.fetch(torch.arange(50))[:, 0].numpy().astype(np.uint8)
    np.savez(tmp_path / "new.npz", x=stored, y=test.labels[:50].numpy())
    report = early_exit_report(run, epsilon=0.02, path=tmp_path / "new.npz", device="cpu", batch_sizes=(4,))
    assert (report.evaluation.split, report.evaluation.samples) == ("all", 50)
    assert report.early_exit.guarantee is not None


def test_early_exit_is_faster_if_most_of_the_network_is_skipped() -> None:
    method = create_method("hff", create_network("mlp", (64,), 10, widths=(16, 1500, 1500)), 10).eval()
    speed = exit_speed(method, torch.randn(64, 64), EarlyExit(0.01), 64, rounds=5)
    assert speed.speed_up > 2
    assert speed.full_seconds > speed.early_seconds


def test_a_method_without_lower_scores_is_refused(tmp_path: Path) -> None:
    mapping = {"method": "backprop", "network": {"name": "mlp", "widths": [8]}, "epochs": 1}
    train(Experiment.from_mapping(mapping), tmp_path / "run", device="cpu")
    for threshold in (None, 0.5):
        with pytest.raises(UserError, match="no scores in the layers below its read-out"):
            early_exit_report(tmp_path / "run", threshold)
