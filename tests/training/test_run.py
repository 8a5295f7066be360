"""The run folder and its checkpoint."""

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
from hff.training import Run, checkpoint
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
    run.save({f"method/{name}": t for name, t in trained.state_dict().items()}, {})
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
    save_file({"optimiser/block0/0": torch.ones(1)}, run.folder / "checkpoint.safetensors", {"state": "{}"})
    loaded = run.load()
    assert loaded is not None
    assert list(loaded[0]) == ["optimizer/block0/0"]


def test_damaged_files_are_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run folder"):
        Run.open(tmp_path)
    with pytest.raises(UserError, match="no checkpoint at"):
        run.load_weights(create_method("backprop", create_network("mlp", (1, 8, 8), 10), 10))
    for name, content, message, read in (
        ("config.yaml", "a: [1", r"config\.yaml cannot be read", lambda: run.config),
        ("config.yaml", "- 1", "does not contain settings", lambda: run.config),
        ("summary.json", "{", r"summary\.json cannot be read", run.summary),
        ("summary.json", "[]", "does not contain a JSON object", run.summary),
        ("checkpoint.safetensors", "nothing", "is damaged", run.load),
        ("checkpoint.safetensors", "nothing", "is damaged", run.position),
    ):
        (run.folder / name).write_text(content)
        with pytest.raises(UserError, match=message) as error:
            read()
        assert "\n" not in str(error.value)
