"""The run folder and its checkpoint."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from hff.data import DataSet
from hff.errors import UserError
from hff.methods import create_method
from hff.networks import create_network
from hff.training import Run, checkpoint, lock
from hff.training.plan import Position
from hff.training.run import with_current_names


@pytest.fixture
def run(tmp_path: Path, digits: DataSet) -> Run:
    return Run.create(tmp_path / "run", {"epochs": 3}, digits)


def test_a_new_run_knows_its_config_and_data_and_nothing_else(run: Run, digits: DataSet) -> None:
    assert Run.exists(run.folder)
    assert run.config == {"epochs": 3}
    assert (run.classes, run.preprocessing) == (digits.classes, digits.preprocessing)
    assert not run.finished
    assert (run.summary(), run.failure(), run.evaluation("test"), run.load()) == (None, None, None, None)
    assert (run.cost(), run.metrics(), run.position()) == ({}, [], Position())


def test_results_are_saved_by_name(run: Run) -> None:
    run.save_evaluation("test", {"accuracy": 0.9})
    run.save_evaluation("validation", {"accuracy": 0.8})
    assert run.evaluation("test") == {"accuracy": 0.9}
    assert run.evaluation("validation") == {"accuracy": 0.8}
    run.finish({"epochs": 3})
    assert run.finished
    assert run.summary() == {"epochs": 3}


def test_costs_and_a_failure_can_be_saved_before_the_run_starts(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.add_cost({"peak_memory": None})
    run.add_cost({"step_seconds": [0.5]})
    assert run.cost() == {"peak_memory": None, "step_seconds": [0.5]}
    run.save_failure("The loss is not finite.")
    assert run.failure() == "The loss is not finite."
    assert not Run.exists(run.folder)


def test_the_position_is_read_without_the_tensors(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.save({"x": torch.ones(3)}, {"position": {"epoch": 2, "spent": 1.5}})

    def refuse(path: Path) -> Any:
        raise AssertionError("the tensors were read")

    monkeypatch.setattr(checkpoint, "load", refuse)
    assert run.position() == Position(epoch=2, spent=1.5)


def test_weights_come_from_the_checkpoint_or_from_tensors_already_loaded(run: Run) -> None:
    network = create_network("mlp", (1, 8, 8), 10, widths=(8,))
    trained, first, second = (create_method("backprop", network, 10, seed=seed) for seed in range(3))
    run.save({f"method/{name}": t for name, t in trained.state_dict().items()}, {"position": {}})
    run.load_weights(first)
    loaded = run.load()
    assert loaded is not None
    run.load_weights(second, loaded[0])
    for name, tensor in trained.state_dict().items():
        assert torch.equal(first.state_dict()[name], tensor)
        assert torch.equal(second.state_dict()[name], tensor)
    other = create_method("backprop", create_network("mlp", (1, 8, 8), 10, widths=(9,)), 10)
    with pytest.raises(UserError, match="does not fit its config"):
        run.load_weights(other)


def test_old_names_of_settings_and_tensors_are_translated(run: Run) -> None:
    old: dict[str, Any] = {"schedule": "cosine", "keep_gigabytes": 1.0}
    new: dict[str, Any] = {"lr_schedule": "cosine", "cache_gigabytes": 1.0}
    for before, after in (
        ({"name": "hff", "schedule": "greedy"}, {"name": "hff", "layer_order": "greedy"}),
        ({"name": "ssdfa", "rest": 1, "head": 2}, {"name": "ssdfa", "frozen": 1, "output": 2}),
        ({"name": "dll", "head": 2}, {"name": "dll", "output": 2}),
        ({"name": "backprop", "head": "pool"}, {"name": "backprop", "head": "pool"}),
        ({"name": "predictive_coding", "centred": True}, {"name": "predictive_coding", "centered": True}),
        ({"name": "of_another_package", "schedule": 1}, {"name": "of_another_package", "schedule": 1}),
    ):
        (run.folder / "config.yaml").write_text(yaml.safe_dump({**old, "method": before}))
        assert run.config == {**new, "method": after}
        assert with_current_names(run.config) == run.config
    save_file(
        {"optimiser/block0/0": torch.ones(1)},
        run.folder / "checkpoint.safetensors",
        {"state": '{"position": {}}'},
    )
    loaded = run.load()
    assert loaded is not None
    assert list(loaded[0]) == ["optimizer/block0/0"]


def test_damaged_files_are_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run folder"):
        Run.open(tmp_path)
    with pytest.raises(UserError, match="no checkpoint at"):
        run.load_weights(create_method("backprop", create_network("mlp", (1, 8, 8), 10), 10))
    for name, content, message, read in (
        ("config.yaml", "a: [1", r"config\.yaml is not valid YAML", lambda: run.config),
        ("config.yaml", "- 1", "does not contain settings", lambda: run.config),
        ("summary.json", "{", r"summary\.json cannot be read", run.summary),
        ("summary.json", "[]", "does not contain a JSON object", run.summary),
        ("config.yaml", "a: &a [1]\nb: *a", "anchors and aliases are not supported", lambda: run.config),
        ("config.yaml", "a: \0", "NUL characters", lambda: run.config),
        ("config.yaml", 'a: "\\ud800"', "is not text", lambda: run.config),
        ("config.yaml", "a: " + "9" * 30, "more than 63 bits", lambda: run.config),
        ("config.yaml", "a: " + "9" * 5000, "is not valid YAML", lambda: run.config),
        ("config.yaml", "a: 2024-99-99", "is not valid YAML", lambda: run.config),
        ("config.yaml", "a: !!python/object:os.system x", "is not valid YAML", lambda: run.config),
        ("config.yaml", "a: " + "[" * 3000, "nested too deeply", lambda: run.config),
        ("config.yaml", "a: " + "b" * 300_000, "at most 262,144", lambda: run.config),
        ("config.yaml", "1: 2", "does not contain settings", lambda: run.config),
        ("summary.json", '{"a":' * 100_000, "nested too deeply", run.summary),
        ("summary.json", '{"read_out_accuracy": "x"}', "'read_out_accuracy' is missing or has", run.summary),
        ("eval-test.json", '{"accuracy": 7}', "'accuracy' is missing or has", lambda: run.evaluation("test")),
        ("cost.json", '{"step_seconds": [1, -1]}', r"'step_seconds\[1\]' is missing or has", run.cost),
        ("failure.json", "{}", "'reason' is missing", run.failure),
        ("data.json", '{"name": "x", "classes": []}', "'classes' is missing or", lambda: run.classes),
        ("checkpoint.safetensors", "nothing", "is damaged", run.load),
        ("checkpoint.safetensors", "nothing", "is damaged", run.position),
    ):
        (run.folder / name).write_text(content)
        with pytest.raises(UserError, match=message) as error:
            read()
        assert "\n" not in str(error.value)
        assert name in str(error.value)
    (run.folder / "config.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UserError, match="not UTF-8 text"):
        _ = run.config


RECORD = {
    "stage": "all",
    "epoch": 1,
    "epochs": 3,
    "loss": {"block0": 1.5},
    "validation_accuracy": {"0": 0.5},
    "read_out_accuracy": None,
    "learning_rate": 0.1,
    "seconds": 2.0,
}


def test_a_damaged_line_of_metrics_is_named_and_a_cut_off_one_is_dropped(run: Run) -> None:
    path = run.folder / "metrics.jsonl"
    for epoch in (1, 2, 3):
        run.append_metrics({**RECORD, "epoch": epoch})
    whole = path.read_text()
    path.write_text(whole[:-20])
    assert [record["epoch"] for record in run.metrics()] == [1, 2]
    run.truncate_metrics(2)
    assert path.read_text() == "".join(whole.splitlines(keepends=True)[:2])
    with pytest.raises(UserError, match="2 readable lines, but the checkpoint was written after 3"):
        run.truncate_metrics(3)
    for damaged in ("{", "[]", '{"epoch": "x"}', '{"a":' * 9999):
        lines = whole.splitlines()
        lines[1] = damaged
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(UserError, match=r"Line 2 of .*metrics\.jsonl"):
            run.metrics()


def test_two_processes_cannot_train_one_run(run: Run) -> None:
    other = Run(run.folder)
    with run.lock, run.lock, pytest.raises(UserError, match="Another process is writing to"):
        other.lock.__enter__()
    with other.lock:
        assert (run.folder / ".lock").exists()
    assert not (run.folder / ".lock").exists()


def test_a_lock_does_not_outlive_a_killed_process(run: Run) -> None:
    # The module alone, because importing the whole package takes seconds.
    code = (
        "import runpy, sys, pathlib; FolderLock = runpy.run_path(sys.argv[2])['FolderLock']\n"
        "FolderLock(pathlib.Path(sys.argv[1])).__enter__(); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(run.folder), lock.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(UserError, match="Another process"):
            run.lock.__enter__()
        process.kill()
        process.wait()
    with run.lock:
        pass
