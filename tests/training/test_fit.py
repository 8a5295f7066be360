"""The training loop: records, schedules, errors, and resuming interrupted runs bit-identically."""

import json
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hff.data import DataSet, load_data
from hff.errors import UserError
from hff.evaluation import evaluate
from hff.methods import Method, create_method, methods
from hff.networks import create_network
from hff.training import Listener, Run, Settings, fit, pick_device
from hff.training.optimizers import learning_rate

SETTINGS = Settings(epochs=3, batch_size=128, checkpoint_seconds=0.0)


def method_for(data: DataSet, name: str = "hff", **options: Any) -> Method:
    for dropout in (0.2, 0.0):
        net = create_network("mlp", data.in_shape, 10, widths=(24, 20), dropout=dropout)
        if methods[name].unsupported_reason(net, 10):
            net = create_network("cnn", data.in_shape, 10, channels=(10, 10), dropout=dropout)
        if not methods[name].unsupported_reason(net, 10):
            break
    return create_method(name, net, 10, seed=0, **options)


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "seconds"}


def outcome(run: Run) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]], dict[str, Any]]:
    loaded = run.load()
    summary = run.summary()
    assert loaded is not None
    assert summary is not None
    return loaded[0], [timeless(r) for r in run.metrics()], timeless(summary)


def assert_same(a: Run, b: Run) -> None:
    tensors, records, summary = outcome(a)
    others, other_records, other_summary = outcome(b)
    assert tensors.keys() == others.keys()
    assert all(torch.equal(t, others[name]) for name, t in tensors.items())
    assert records == other_records
    assert summary == other_summary


@pytest.fixture(scope="module")
def few_digits() -> DataSet:
    """Six batches of 64 in every epoch, also for the last of them."""
    return load_data("digits", limit=420)


OPTIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "hff greedy class means": (
        "hff",
        {"layer_order": "greedy", "prototype_update": "class_means", "prototype_init": "class_means"},
        {"lr_schedule": "cosine"},
    ),
    "hff greedy, features on disk": (
        "hff",
        {"layer_order": "greedy"},
        {"cache_gigabytes": 0.0, "cache_location": "disk"},
    ),
    "hff balanced classes": ("hff", {"layer_order": "greedy"}, {"balance_classes": True}),
    "hff shadow": ("hff", {"prototype_update": "shadow"}, {"optimizer": "adamw", "weight_decay": 0.01}),
    "hff smoothed": ("hff", {"prototype_update": "smoothed"}, {"optimizer": "rmsprop"}),
    "ff hard negatives": ("ff", {"negatives": "hard"}, {}),
    "ffcm two stages": ("ffcm", {"views": 2, "head_epochs": 0.4}, {}),
    "cwconv overlapping stages": ("cwconv", {"ends": (0.34, 0.67)}, {}),
    "noprop": ("noprop_dt", {"steps": 2, "embedding": "prototype", "blocks_per_step": 2}, {}),
    "hebb greedy and linear": ("hebb", {"layer_order": "greedy", "read_out_rule": "linear"}, {}),
    "softhebb": ("softhebb", {"block_batch_size": 50, "block_epochs": 1}, {}),
    "dll learned feedback": ("dll", {"feedback": "learned"}, {}),
    "equilibrium propagation, random sign": (
        "equilibrium_prop",
        {"nudging": "random_sign", "free_steps": 8, "nudged_steps": 3},
        {},
    ),
    "predictive coding, incremental": (
        "predictive_coding",
        {"variant": "incremental", "inference_steps": 3, "inference_momentum": 0.5},
        {},
    ),
    "backprop": ("backprop", {}, {"optimizer": "sgd", "lr_schedule": "linear", "clip": 1.0}),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_a_run_interrupted_at_any_step_resumes_bit_identically(
    case: str, few_digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, options, settings = OPTIONS[case]
    chosen = replace(SETTINGS, batch_size=64, **settings)
    digits = few_digits
    straight = Run.create(tmp_path / "straight", {}, digits)
    # Checkpoints do not change a training, so the uninterrupted one needs few.
    fit(method_for(digits, name, **options), digits, replace(chosen, checkpoint_seconds=60.0), run=straight)

    stopped = Run.create(tmp_path / "stopped", {}, digits)
    saves = {"left": 0}
    save = Run.save

    def save_then_fail(self: Run, *args: Any) -> None:
        save(self, *args)
        saves["left"] -= 1
        if saves["left"] == 0:
            raise ConnectionAbortedError

    monkeypatch.setattr(Run, "save", save_then_fail)
    for steps in (1, 3, 9, 4, 100_000):
        saves["left"] = steps
        try:
            fit(method_for(digits, name, **options), digits, chosen, run=stopped)
        except ConnectionAbortedError:
            continue
    assert_same(straight, stopped)


def test_ctrl_c_saves_a_checkpoint_to_resume_from(digits: DataSet, tmp_path: Path) -> None:
    class Interrupting(Listener):
        def epoch_ended(self, record: dict[str, Any]) -> None:
            if record["epoch"] == 1:
                os.kill(os.getpid(), signal.SIGINT)

    straight = Run.create(tmp_path / "straight", {}, digits)
    fit(method_for(digits), digits, SETTINGS, run=straight)
    stopped = Run.create(tmp_path / "stopped", {}, digits)
    with pytest.raises(KeyboardInterrupt):
        fit(method_for(digits), digits, SETTINGS, run=stopped, listener=Interrupting())
    assert not stopped.finished
    fit(method_for(digits), digits, SETTINGS, run=stopped)
    assert_same(straight, stopped)


def test_a_run_killed_while_saving_resumes_bit_identically(digits: DataSet, tmp_path: Path) -> None:
    """A checkpoint is written after every step, so the process is likely to be killed while saving."""
    settings = Settings(epochs=4, batch_size=32)
    straight = Run.create(tmp_path / "straight", {}, digits)
    fit(method_for(digits), digits, settings, run=straight)
    killed = Run.create(tmp_path / "killed", {}, digits)
    process = os.fork()
    if process == 0:
        try:
            fit(method_for(digits), digits, replace(settings, checkpoint_seconds=0.0), run=killed)
        finally:
            os._exit(1)
    while not (killed.folder / "checkpoint.safetensors").exists():
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, "the training finished before it could be killed"
    fit(method_for(digits), digits, settings, run=killed)
    assert_same(straight, killed)
    assert not list(killed.folder.glob("*.partial"))


def test_a_failed_save_keeps_the_last_checkpoint(digits: DataSet, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {}, digits)
    fit(method_for(digits), digits, replace(SETTINGS, epochs=1), run=run)
    before = (run.folder / "checkpoint.safetensors").read_bytes()
    (run.folder / "checkpoint.safetensors.partial").mkdir()
    with pytest.raises(OSError, match="checkpoint"):
        run.save({"x": torch.ones(3)}, {})
    assert (run.folder / "checkpoint.safetensors").read_bytes() == before


def test_an_existing_run_is_not_overwritten(digits: DataSet, tmp_path: Path) -> None:
    Run.create(tmp_path / "run", {}, digits)
    with pytest.raises(UserError, match="already contains a run"):
        Run.create(tmp_path / "run", {}, digits)


def test_every_epoch_has_a_record_with_all_layers(digits: DataSet, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {}, digits)
    summary = fit(method_for(digits), digits, SETTINGS, run=run)
    records = run.metrics()
    assert [r["epoch"] for r in records] == [1, 2, 3]
    assert set(records[0]["loss"]) == {"block0", "block1"}
    assert set(records[0]["validation_accuracy"]) == {"0", "1"}
    assert summary["validation_accuracy"] == records[-1]["validation_accuracy"]
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["torch"] == torch.__version__


def test_training_does_not_change_the_global_generator(digits: DataSet) -> None:
    state = torch.random.get_rng_state()
    fit(method_for(digits), digits, replace(SETTINGS, epochs=1))
    assert torch.equal(state, torch.random.get_rng_state())


def test_training_without_a_validation_split() -> None:
    data = load_data("digits", validation=0)
    assert data.validation is None
    assert fit(method_for(data), data, replace(SETTINGS, epochs=1))["validation_accuracy"] == {}


def test_a_loss_that_is_not_finite_is_an_error(digits: DataSet) -> None:
    with pytest.raises(UserError, match="no longer finite; use a smaller learning rate"):
        fit(method_for(digits), digits, replace(SETTINGS, learning_rate=1e30, optimizer="sgd"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"learning_rate": math.nan},
        {"clip": -1.0},
        {"seconds": math.inf},
        {"micro_batch_size": 0},
    ],
)
def test_the_error_for_a_setting_out_of_range_names_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Settings(**wrong)


def test_schedules() -> None:
    def rates(schedule: Any) -> list[float]:
        return [
            learning_rate(Settings(learning_rate=1.0, lr_schedule=schedule), p) for p in (0.0, 0.5, 0.7, 0.9)
        ]

    assert rates("constant") == [1, 1, 1, 1]
    assert rates("linear") == pytest.approx([1, 0.5, 0.3, 0.1])
    assert rates("step") == pytest.approx([1, 1, 0.1, 0.01])
    assert rates("cosine") == pytest.approx(
        [1, 0.5, (1 + math.cos(0.7 * math.pi)) / 2, (1 + math.cos(0.9 * math.pi)) / 2]
    )


def test_a_device_that_is_not_available_is_refused() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="not available"):
        pick_device("toaster")


def test_the_diagnostics_of_a_method_are_recorded_after_every_epoch(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = method_for(digits)
    monkeypatch.setattr(method, "diagnostics", lambda: {"norm of block0": 2.5})
    run = Run.create(tmp_path / "run", {}, digits)
    fit(method, digits, SETTINGS, run=run)
    assert [record["diagnostics"] for record in run.metrics()] == [{"norm of block0": 2.5}] * 3


def test_the_final_diagnostics_are_those_of_the_validation_split(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = method_for(digits)
    counted = lambda batches: {"samples": sum(len(batch.y) for batch in batches)}  # noqa: E731
    monkeypatch.setattr(method, "final_diagnostics", counted)
    run = Run.create(tmp_path / "run", {}, digits)
    fit(method, digits, SETTINGS, run=run)
    assert run.summary()["diagnostics"] == {"samples": len(digits.validation)}
    # Nothing is recorded without validation data.
    assert "diagnostics" not in fit(method_for(digits), replace(digits, validation=None), SETTINGS)


def test_balanced_classes_raise_the_recall_of_a_rare_class(digits: DataSet) -> None:
    """Two overlapping classes, one of them with 30 of 630 training examples."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 600 + [1] * 30)
    x = torch.randn(630, 8, generator=generator) + 0.6 * labels[:, None]
    test = torch.tensor([0] * 200 + [1] * 200)
    x_test = torch.randn(400, 8, generator=generator) + 0.6 * test[:, None]
    data = DataSet.from_arrays(x, labels, x_test=x_test, y_test=test, validation=0)
    recalls = []
    for balanced in (False, True):
        network = create_network("mlp", data.in_shape, 2, widths=(32,))
        method = create_method("hff", network, 2)
        fit(method, data, Settings(epochs=8, batch_size=32, balance_classes=balanced))
        recalls.append(evaluate(method, data).per_class[1].recall)
    assert recalls[1] > recalls[0] + 0.2


class Recorder(Listener):
    """Remembers what was said about the data."""

    def __init__(self) -> None:
        self.warnings: list[str] | None = None

    def data_loaded(self, data: DataSet, warnings: Sequence[str]) -> None:
        self.warnings = list(warnings)


@pytest.mark.parametrize(
    ("network", "channels", "warned"), [("mlp", 3, True), ("cnn", 3, False), ("mlp", 1, False)]
)
def test_a_linear_first_layer_on_color_images_is_warned_about(
    network: str, channels: int, warned: bool
) -> None:
    x = torch.randint(256, (60, channels, 8, 8), dtype=torch.uint8)
    data = DataSet.from_arrays(x, torch.arange(60) % 2)
    options: dict[str, Any] = {"mlp": {"widths": (4,)}, "cnn": {"channels": (4,)}}[network]
    method = create_method("backprop", create_network(network, data.in_shape, 2, **options), 2)
    listener = Recorder()
    fit(method, data, Settings(epochs=1), listener=listener)
    assert listener.warnings is not None
    assert any("--network cnn" in warning for warning in listener.warnings) == warned


@pytest.mark.parametrize(
    ("samples", "batch_size", "advice"),
    [(60, 64, "takes only 3 steps"), (60, 64, "--batch-size 8"), (300, 128, "--batch-size 32"), (60, 8, "")],
)
def test_batches_that_are_large_for_the_data_are_warned_about(
    samples: int, batch_size: int, advice: str
) -> None:
    data = DataSet.from_arrays(torch.randn(samples, 3), torch.arange(samples) % 2, validation=0)
    method = create_method("backprop", create_network("mlp", (3,), 2, widths=(4,)), 2)
    listener = Recorder()
    fit(method, data, Settings(epochs=3, batch_size=batch_size), listener=listener)
    found = [warning for warning in listener.warnings or () if "batches of" in warning]
    assert len(found) == bool(advice)
    assert advice in "".join(found)


def test_a_trained_method_knows_its_preprocessing_and_classes(digits: DataSet) -> None:
    method = method_for(digits)
    fit(method, digits, replace(SETTINGS, epochs=1))
    assert method.preprocessing == digits.preprocessing
    assert method.class_names == digits.classes
