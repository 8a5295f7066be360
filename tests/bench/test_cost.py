"""The cost of a method: interleaved timing, weighted stages, and the benchmark script."""

import csv
import subprocess
import sys
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hff.bench.cost import (
    epoch_seconds,
    interleaved,
    predictions,
    random_batch,
    step_seconds,
    trained_stages,
    training_steps,
)
from hff.errors import UserError
from hff.methods import Method, Stage, create_method
from hff.networks import create_network
from hff.training import Settings

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cost.py"
SHAPE = (1, 28, 28)
STAGES = [Stage("first", (0,), 1, batch_size=10), Stage("second", (1,), 3)]


def build(*widths: int) -> Method:
    return create_method("backprop", create_network("mlp", SHAPE, 10, widths=widths), 10, seed=0)


def test_tasks_are_interleaved_and_the_warm_up_is_not_counted() -> None:
    calls: list[str] = []
    tasks = {name: partial(calls.append, name) for name in "abc"}
    ticks = count()
    seconds = interleaved(tasks, 2, warm_up=1, clock=lambda: next(ticks) + 10 * calls.count("b"))
    assert calls == [*"abc"] * 3
    assert seconds == {"a": [1, 1], "b": [11, 11], "c": [1, 1]}


def test_stages_are_weighted_by_their_epochs() -> None:
    assert step_seconds(STAGES, [1.0, 2.0]) == pytest.approx(1 / 4 * 1 + 3 / 4 * 2)


def test_the_steps_of_an_epoch_follow_from_the_batch_size_of_each_stage() -> None:
    seconds = epoch_seconds(STAGES, [1.0, 2.0], Settings(batch_size=50), images=100)
    assert seconds == pytest.approx(1 / 4 * 10 * 1 + 3 / 4 * 2 * 2)


def test_stages_without_an_epoch_are_not_measured() -> None:
    net = create_network("mlp", SHAPE, 10, widths=(4, 4, 4))
    method = create_method("hff", net, 10, layer_order="greedy", greedy_epochs="shared")
    assert [stage.blocks for stage in trained_stages(method, Settings(epochs=2))] == [(0,), (1,)]


def test_training_steps_train_the_blocks_of_the_stage() -> None:
    net = create_network("mlp", SHAPE, 10, widths=(8, 6), dropout=0.5)
    method = create_method("hff", net, 10, layer_order="greedy")
    stage = method.stages(1)[1]
    batches = [random_batch(SHAPE, 10, 4, step=step) for step in range(3)]
    task = training_steps(method, stage, Settings(), batches)
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    groups: list[str] = []
    method.after_step = groups.append  # type: ignore[method-assign]
    task()
    assert groups == ["block1"] * 3
    moved = {name for name, p in method.named_parameters() if not torch.equal(p, before[name])}
    assert "blocks.1.affine.weight" in moved
    assert "blocks.0.affine.weight" not in moved


def test_predictions_are_made_in_evaluation_mode_without_gradients() -> None:
    method = build(8)
    seen: list[tuple[int, bool, bool]] = []
    method.register_forward_hook(
        lambda module, inputs, scores: seen.append((len(scores), module.training, scores.requires_grad))
    )
    predictions(method.train(), [torch.zeros(3, *SHAPE), torch.zeros(2, *SHAPE)])()
    assert seen == [(3, False, False), (2, False, False)]
    assert method.training


def test_random_batches_depend_on_the_step_and_have_independent_views() -> None:
    first, again, second = (random_batch((2,), 10, 5, step=step, views=3) for step in (0, 0, 1))
    assert [view.shape for view in first.other_views] == [first.x.shape] * 2
    assert not torch.equal(first.x, first.other_views[0])
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, second.x)
    assert set(first.index.tolist()).isdisjoint(second.index.tolist())


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    return import_module(BENCHMARK.stem)


def test_the_benchmark_replaces_the_row_of_an_experiment(tmp_path: Path) -> None:
    table = tmp_path / "cost.csv"
    table.write_text("experiment,seed,network\ndigits,0,old\nother,0,kept\n")
    flags = "--override network.widths=16,8 --images 640 --rounds 2 --steps 1"
    command = [sys.executable, str(BENCHMARK), "digits", *flags.split(), "--out", str(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with table.open(newline="") as file:
        row, other = csv.DictReader(file)
    assert (other["experiment"], other["network"]) == ("other", "kept")
    assert (row["experiment"], row["method"], row["network"]) == ("digits", "hff", "mlp 16-8")
    assert (row["batch_size"], row["training_images"], row["rounds"]) == ("64", "640", "2")
    assert row["command"].startswith(f"cost.py digits {flags}")
    assert float(row["seconds_per_epoch"]) > 0
    assert float(row["seconds_per_10000_predictions"]) > 0
    assert all(row.values())


def test_an_override_applies_to_the_recipes_that_have_the_setting(benchmark: ModuleType) -> None:
    overrides = {"network.widths": "7,5", "batch_size": "32"}
    mlp, cnn = benchmark.experiments(["digits", "mnist_cnn"], overrides)
    assert mlp.network.options["widths"] == (7, 5)
    assert "widths" not in cnn.network.options
    assert (mlp.training.batch_size, cnn.training.batch_size) == (32, 32)


@pytest.mark.parametrize(
    ("recipe", "overrides", "sentence"),
    [
        ("digits", {"network.width": "8"}, "did you mean 'network.widths'"),
        ("digits", {"batch": "8"}, "did you mean 'batch_size'"),
        ("digits", {"data": "npz"}, "shape of 'npz'"),
        ("digit", {}, "did you mean 'digits'"),
    ],
)
def test_errors_of_the_benchmark_suggest_the_nearest_name(
    benchmark: ModuleType, recipe: str, overrides: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        benchmark.subject(*benchmark.experiments([recipe], overrides))


def test_the_spread_is_the_interquartile_range_relative_to_the_median(benchmark: ModuleType) -> None:
    assert benchmark.spread([1.0, 2.0, 4.0, 5.0, 100.0]) == pytest.approx((5 - 2) / 4)
