"""Estimates of the training and evaluation time."""

import pytest

from hff.bench.estimate import Cost, Estimate, estimate
from hff.comparison import ComparisonSettings
from hff.comparison.entrants import Entry, find_entrants
from hff.data import load_data
from hff.experiment import Experiment, Selection

DIGITS = Experiment.from_mapping({"data": {"name": "digits", "limit": 200}}).data
DATA = load_data("digits", limit=200)
HFF = [Entry("hff", {})]
MLP = Selection("mlp", {"widths": (16, 12)})
BY_EPOCHS = ComparisonSettings(DIGITS, MLP, epochs=2, batch_size=64)
BY_TIME = ComparisonSettings(DIGITS, MLP, seconds=60.0, batch_size=64)


def test_estimates_agree_with_the_plan_of_the_training() -> None:
    sizes = {"train": 640, "validation": 100, "test": 400}
    cost = Cost((0.5,), prediction_seconds=0.01)
    by_epochs = find_entrants(BY_EPOCHS, HFF, DATA)[0]["hff"]
    # 2 epochs of 10 steps; 2 validations, 1 pass for the scales of the layers, and the test.
    assert estimate(by_epochs, cost, **sizes) == Estimate(10.0, 3.0 + 4.0)
    assert estimate(by_epochs, cost, **sizes, seen=640).training == 5.0
    by_time = find_entrants(BY_TIME, HFF, DATA)[0]["hff"]
    # A validation after each of 12 epochs of 5 seconds and at the end of the stage.
    assert estimate(by_time, cost, **sizes) == Estimate(60.0, 14.0 + 4.0)
    assert estimate(by_time, cost, **sizes, spent=20.0).training == 40.0
    # With short epochs, there are fewer validations than epochs.
    assert estimate(by_time, Cost((1e-3,), 0.01), **sizes).evaluation == pytest.approx(22.0 + 4.0)
