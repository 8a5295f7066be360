"""Training with a time budget, which the stages share and only training steps use up."""

import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hff.data import Batches, DataSet
from hff.methods import Method, Stage, create_method
from hff.networks import create_network
from hff.training import Listener, Run, Settings, TrainingProgress, fit
from hff.training.plan import RECORDS, Plan, Position

STEP, VALIDATION, CHECKPOINT = 0.5, 100.0, 1000.0
STEPS = 21
"""Steps per epoch: 1293 digits in batches of 64."""
SETTINGS = Settings(epochs=4, seconds=30.0, batch_size=64, lr_schedule="linear", learning_rate=1.0)


class Clock:
    """A clock that advances only by the assumed times of steps, validations and checkpoints."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0

    def perf_counter(self) -> float:
        return self.now


class Recorder(Listener):
    def __init__(self) -> None:
        self.received: list[TrainingProgress] = []

    def stepped(self, progress: TrainingProgress) -> None:
        self.received.append(progress)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    # `hff.training.fit` is the function, which hides the module of the same name.
    loop = fit.__globals__
    monkeypatch.setitem(loop, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    validate, save = loop["layer_accuracy"], Run.save

    def slow_validation(*arguments: Any) -> Any:
        clock.now += VALIDATION
        return validate(*arguments)

    def slow_save(self: Run, *arguments: Any) -> None:
        save(self, *arguments)
        clock.now += CHECKPOINT

    monkeypatch.setitem(loop, "layer_accuracy", slow_validation)
    monkeypatch.setattr(Run, "save", slow_save)
    return clock


def method_for(data: DataSet, clock: Clock, stages: list[Stage], step: float = STEP) -> Method:
    """A method of two layers with these stages, whose steps take this many seconds on the clock."""
    method = create_method("mono_forward", create_network("mlp", data.in_shape, 10, widths=(8, 8)), 10)
    update = method.update
    method.stages = lambda epochs: stages  # type: ignore[method-assign]

    def slow_update(*arguments: Any) -> Any:
        yield from update(*arguments)
        clock.now += step
        clock.steps += 1

    method.update = slow_update  # type: ignore[method-assign, assignment]
    return method


JOINT = [Stage("joint", (0, 1), 4)]
GREEDY = [Stage("first", (0,), 3), Stage("none", (1,), 0), Stage("second", (1,), 1)]


def test_only_training_steps_use_up_the_budget(digits: DataSet, tmp_path: Path, clock: Clock) -> None:
    run = Run.create(tmp_path / "run", {}, digits)
    summary = fit(method_for(digits, clock, JOINT), digits, SETTINGS, run=run)
    assert clock.steps == 60
    assert run.position().spent == 30
    assert clock.now > 3 * (VALIDATION + CHECKPOINT)
    # Two complete epochs of 21 steps, and one that ends early with the budget.
    records = run.metrics()
    assert [record["training_seconds"] for record in records] == [10.5, 21, 30]
    assert [record["share"] for record in records] == [0.35, 0.7, 1]
    seen = [1293, 2 * 1293, 2 * 1293 + 18 * 64]
    assert [record["epoch"] for record in records] == [round(n / 1293, 2) for n in seen]
    assert summary["epochs"] == records[-1]["epoch"] == 2.89
    assert summary["read_out_accuracy"] == records[-1]["read_out_accuracy"]


def test_stages_share_the_budget_in_proportion_to_their_epochs(
    digits: DataSet, tmp_path: Path, clock: Clock
) -> None:
    run = Run.create(tmp_path / "run", {}, digits)
    fit(method_for(digits, clock, GREEDY), digits, replace(SETTINGS, seconds=8.0), run=run)
    assert [(r["stage"], r["training_seconds"]) for r in run.metrics()] == [("first", 6), ("second", 8)]


def test_a_long_step_shortens_the_next_stage_but_not_below_one_step(
    digits: DataSet, tmp_path: Path, clock: Clock
) -> None:
    run = Run.create(tmp_path / "run", {}, digits)
    fit(method_for(digits, clock, GREEDY, step=5.0), digits, replace(SETTINGS, seconds=8.0), run=run)
    assert [(r["stage"], r["training_seconds"]) for r in run.metrics()] == [("first", 10), ("second", 15)]


def test_the_learning_rate_follows_the_time_spent(digits: DataSet, tmp_path: Path, clock: Clock) -> None:
    run = Run.create(tmp_path / "run", {}, digits)
    fit(method_for(digits, clock, GREEDY), digits, replace(SETTINGS, seconds=8.0), run=run)
    # The rate of the last step, which starts half a second before the end of the stage.
    assert [r["learning_rate"] for r in run.metrics()] == pytest.approx([0.5 / 6, 0.5 / 2])


def test_the_budget_may_exceed_the_epochs_and_limits_the_records(
    digits: DataSet, tmp_path: Path, clock: Clock
) -> None:
    run = Run.create(tmp_path / "run", {}, digits)
    plan = replace(SETTINGS, epochs=1, batch_size=1024, seconds=100.0)
    summary = fit(method_for(digits, clock, [Stage("joint", (0, 1), 1)]), digits, plan, run=run)
    assert clock.steps == 200
    assert summary["epochs"] == 100
    assert len(run.metrics()) == RECORDS


@pytest.mark.parametrize("stages", [JOINT, GREEDY], ids=["joint", "greedy"])
def test_an_interrupted_run_resumes_with_the_rest_of_the_budget(
    stages: list[Stage], digits: DataSet, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, checkpoint_seconds=0.0, seconds=20.0)
    straight = Run.create(tmp_path / "straight", {}, digits)
    fit(method_for(digits, clock, stages), digits, settings, run=straight)
    stopped = Run.create(tmp_path / "stopped", {}, digits)
    save, clock.steps, left = Run.save, 0, 0

    def save_then_fail(self: Run, *arguments: Any) -> None:
        nonlocal left
        save(self, *arguments)
        left -= 1
        if left == 0:
            raise ConnectionAbortedError

    monkeypatch.setattr(Run, "save", save_then_fail)
    for left in (1, 6, 20, 5, 3, 1000):  # noqa: B007
        try:
            fit(method_for(digits, clock, stages), digits, settings, run=stopped)
        except ConnectionAbortedError:
            clock.now += 12345.0
    assert stopped.finished
    assert clock.steps == 40
    assert stopped.position() == replace(straight.position(), seconds=stopped.position().seconds)
    (tensors, _), (others, _) = straight.load() or ({}, {}), stopped.load() or ({}, {})
    assert tensors.keys() == others.keys()
    assert all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
    timeless = [[{**r, "seconds": 0} for r in run.metrics()] for run in (straight, stopped)]
    assert timeless[0] == timeless[1]


def test_ctrl_c_between_two_records_saves_a_checkpoint(digits: DataSet, tmp_path: Path, clock: Clock) -> None:
    run = Run.create(tmp_path / "run", {}, digits)
    settings = replace(SETTINGS, batch_size=2000, seconds=100.0, checkpoint_seconds=1e9)
    method = method_for(digits, clock, [Stage("joint", (0, 1), 1)])
    update = method.update

    def stop_at_the_third_step(*arguments: Any) -> Any:
        yield from update(*arguments)
        if clock.steps == 3:
            os.kill(os.getpid(), signal.SIGINT)

    method.update = stop_at_the_third_step  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        fit(method, digits, settings, run=run)
    assert run.position().spent == 3 * STEP


@pytest.mark.parametrize(("seconds", "left"), [(30.0, 30 - 6 * STEP), (None, (4 * STEPS - 6) * STEP)])
def test_a_listener_receives_the_progress(
    seconds: float | None, left: float, digits: DataSet, clock: Clock
) -> None:
    recorder = Recorder()
    settings = replace(SETTINGS, seconds=seconds)
    fit(method_for(digits, clock, JOINT), digits, settings, listener=recorder)
    sixth = recorder.received[5]
    assert sixth.seconds_left == pytest.approx(left)
    assert sixth.share == (None if seconds is None else pytest.approx(6 * STEP / seconds))
    assert list(sixth.losses) == ["block0", "block1"]


def test_without_a_budget_the_plan_counts_epochs(digits: DataSet) -> None:
    plan = Plan(GREEDY, Settings(epochs=4))
    assert plan.progress(Position(epoch=1, step=7), steps=10) == 17 / 30
    assert not plan.over(Position(epoch=2, step=9, spent=math.inf), steps=10)
    assert plan.over(Position(epoch=3), steps=10)
    assert plan.over(Position(stage=1), steps=10)
    assert plan.share(Position(spent=3.0)) is None
    assert len(Batches.in_order(digits.train, digits.preprocessing, 64)) == STEPS


def test_with_both_limits_a_stage_is_over_at_the_first() -> None:
    plan = Plan(GREEDY, Settings(epochs=4, seconds=30.0, stop_at="either"))
    half = Position(epoch=1, step=5, spent=1.0)
    assert plan.progress(half, steps=10) == 15 / 30
    assert plan.over(Position(epoch=3, spent=1.0), steps=10)
    assert plan.over(Position(epoch=1, spent=plan.ends[0]), steps=10)
    # Epochs alone do not end a training with a time budget only.
    assert not Plan(GREEDY, SETTINGS).over(Position(epoch=3, spent=1.0), steps=10)


@pytest.mark.parametrize(("seconds", "steps"), [(7.0, 14), (1000.0, 4 * STEPS)])
def test_a_training_with_both_limits_ends_at_the_first(
    seconds: float, steps: int, digits: DataSet, clock: Clock
) -> None:
    settings = replace(SETTINGS, seconds=seconds, stop_at="either")
    recorder = Recorder()
    fit(method_for(digits, clock, JOINT), digits, settings, listener=recorder)
    assert clock.steps == steps
    assert recorder.received[0].seconds_left == pytest.approx((steps - 1) * STEP)
