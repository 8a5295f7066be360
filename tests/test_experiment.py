from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from hff.data import Batches
from hff.errors import UserError
from hff.evaluation import layer_accuracy
from hff.experiment import Experiment, load_method, overridden, resume, train
from hff.run_group import create_group, is_group, runs, spread, train_group
from hff.training import Listener, Run

TINY: dict[str, Any] = {"network": {"name": "mlp", "widths": [16, 16]}, "epochs": 2}


def test_an_empty_mapping_is_hff_on_digits() -> None:
    experiment = Experiment.from_mapping({})
    assert (experiment.method.name, experiment.network.name, experiment.data.name) == ("hff", "mlp", "digits")
    assert experiment.name == "digits_mlp_hff"
    assert experiment.seed == 0


def test_a_name_stands_for_a_part_with_defaults() -> None:
    assert Experiment.from_mapping({"method": "backprop"}).method.options == {
        "head": "flatten",
        "read_out": "last",
    }


def test_the_mapping_is_complete_plain_and_undone_by_from_mapping() -> None:
    experiment = Experiment.from_mapping({**TINY, "data": {"name": "npz", "path": "x.npz"}, "seed": "3"})
    mapping = experiment.to_mapping()
    assert mapping["method"]["temperature"] == 10.0
    assert mapping["batch_size"] == 128
    assert mapping["network"]["widths"] == [16, 16]
    read_back = yaml.safe_load(yaml.safe_dump(mapping))
    assert Experiment.from_mapping(read_back) == experiment


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"epoch": 3}, "Unknown setting 'epoch'; did you mean 'epochs'?"),
        ({"method": {"temprature": 3}}, "did you mean 'method.temperature'?"),
        ({"method": "hf"}, "Unknown method 'hf'; did you mean 'hff'?"),
        ({"network": "mpl"}, "Unknown network 'mpl'; did you mean 'mlp'?"),
        ({"data": {"name": "mnits"}}, "Unknown data set 'mnits'; did you mean 'mnist'?"),
        ({"data": {"seed": 1}}, "Unknown setting 'data.seed'"),
        ({"epochs": "many"}, "epochs must be a whole number, not 'many'."),
        ({"method": ["hff"]}, "method must be a name, or a mapping"),
        ({"method": {"name": ["hff"]}}, "method"),
    ],
)
def test_a_wrong_mapping_is_refused(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as unsupported_reason:
        Experiment.from_mapping(mapping)
    assert message in str(unsupported_reason.value)


def test_changes_go_on_top_of_a_recipe() -> None:
    recipe = {"name": "r", "method": {"name": "hff", "temperature": 5}, "epochs": 3}
    assert overridden(recipe, {"method": {"grid": "2"}, "epochs": "4"}) == {
        "name": "r",
        "method": {"name": "hff", "temperature": 5, "grid": "2"},
        "epochs": "4",
    }


def test_another_name_drops_the_options_of_the_old_one_and_the_name_of_the_recipe() -> None:
    recipe = {"name": "r", "method": {"name": "hff", "temperature": 5}, "network": {"widths": [3]}}
    changed = overridden(recipe, {"method": {"name": "backprop", "head": "pool"}})
    assert changed == {"method": {"name": "backprop", "head": "pool"}, "network": {"widths": [3]}}


def test_naming_the_same_part_again_keeps_its_options() -> None:
    recipe = {"name": "r", "method": {"name": "hff", "temperature": 5}}
    assert overridden(recipe, {"method": {"name": "hff"}}) == recipe
    assert overridden({"name": "r"}, {"method": {"name": "hff"}})["name"] == "r"


def test_the_seed_decides_weights_and_split() -> None:
    first, data = Experiment.from_mapping(TINY).build()
    again, _ = Experiment.from_mapping(TINY).build()
    other, other_data = Experiment.from_mapping({**TINY, "seed": 1}).build()
    weights = [method.block(0).affine.weight for method in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert data.validation is not None
    assert other_data.validation is not None
    every = torch.arange(len(data.validation))
    assert not torch.equal(data.validation.fetch(every), other_data.validation.fetch(every))


def test_train_then_restore_gives_what_was_measured(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping(TINY)
    summary = train(experiment, tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    method = load_method(run)
    assert not method.training
    _, data = experiment.build()
    assert data.validation is not None
    batches = Batches.in_order(data.validation, run.preprocessing, 50)
    accuracy, read_out = layer_accuracy(method, batches.epoch(0), "cpu")
    assert read_out == summary["read_out_accuracy"]
    assert {str(layer): share for layer, share in accuracy.items()} == summary["validation_accuracy"]
    assert Experiment.from_mapping(run.config) == experiment
    assert resume(run) == summary


class StopAfterFirstEpoch(Listener):
    def epoch_ended(self, record: dict[str, Any]) -> None:
        raise KeyboardInterrupt


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping(TINY)
    with pytest.raises(KeyboardInterrupt):
        train(experiment, tmp_path / "a", device="cpu", listener=StopAfterFirstEpoch())
    resume(Run.open(tmp_path / "a"), device="cpu")
    train(experiment, tmp_path / "b", device="cpu")
    stopped, whole = load_method(Run.open(tmp_path / "a")), load_method(Run.open(tmp_path / "b"))
    for name, tensor in whole.state_dict().items():
        assert torch.equal(stopped.state_dict()[name], tensor), name


def test_several_seeds_are_runs_in_one_folder_with_mean_and_spread(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping({**TINY, "epochs": 1})
    create_group(tmp_path, experiment, (3, 5))
    combined = train_group(tmp_path, device="cpu")
    assert is_group(tmp_path)
    assert list(runs(tmp_path)) == [3, 5]
    singles = [run.summary() for run in runs(tmp_path).values()]
    accuracies = [single["validation_accuracy"]["1"] for single in singles if single]
    mean = sum(accuracies) / 2
    spread_of_two = abs(accuracies[0] - accuracies[1]) / 2**0.5
    assert combined["seeds"] == [3, 5]
    assert combined["validation_accuracy"]["1"] == pytest.approx({"mean": mean, "std": spread_of_two})
    assert Run.open(tmp_path / "seed-5").config["seed"] == 5


def test_resuming_several_seeds_trains_only_what_is_missing(tmp_path: Path) -> None:
    create_group(tmp_path, Experiment.from_mapping({**TINY, "epochs": 1}), (0, 1))

    def stop_at_second(seed: int) -> Listener:
        return StopAfterFirstEpoch() if seed == 1 else Listener()

    with pytest.raises(KeyboardInterrupt):
        train_group(tmp_path, device="cpu", listener=stop_at_second)
    before = (tmp_path / "seed-0" / "summary.json").stat().st_mtime_ns
    combined = train_group(tmp_path, device="cpu")
    assert (tmp_path / "seed-0" / "summary.json").stat().st_mtime_ns == before
    assert all(run.finished for run in runs(tmp_path).values())
    assert combined["seeds"] == [0, 1]


def test_a_group_refuses_repeated_seeds_and_a_folder_in_use(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping({**TINY, "epochs": 1})
    with pytest.raises(UserError, match="each seed once"):
        create_group(tmp_path, experiment, (1, 1))
    create_group(tmp_path, experiment, (1, 2))
    create_group(tmp_path, experiment, (2,))
    train_group(tmp_path, device="cpu")
    with pytest.raises(UserError, match="holds runs already"):
        create_group(tmp_path, experiment, (3,))


def test_spread() -> None:
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
