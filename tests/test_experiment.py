from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from hff.data import Batches, DataSet
from hff.errors import UserError
from hff.evaluation import layer_accuracy
from hff.experiment import Experiment, overridden, resume, train
from hff.trained import evaluate_run, load_method
from hff.training import Listener, Run

TINY: dict[str, Any] = {"network": {"name": "mlp", "widths": [16, 16]}, "epochs": 2}


def test_the_default_experiment_is_hff_on_digits() -> None:
    experiment = Experiment.from_mapping({})
    assert (experiment.method.name, experiment.network.name, experiment.data.name) == ("hff", "mlp", "digits")
    assert experiment.name == "digits_mlp_hff"
    assert experiment.seed == 0


def test_a_part_given_by_name_takes_default_options() -> None:
    assert Experiment.from_mapping({"method": "backprop"}).method.options == {
        "head": "flatten",
        "checkpointing": False,
        "read_out": "last",
    }


def test_to_mapping_writes_out_all_settings_and_from_mapping_reads_them() -> None:
    data = {"name": "npz", "path": "x.npz"}
    experiment = Experiment.from_mapping({**TINY, "data": data, "seed": "3", "batch_size": "20"})
    mapping = experiment.to_mapping()
    assert mapping["method"]["temperature"] == 10.0
    assert mapping["batch_size"] == 20
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
        ({"method": {"name": ["hff"]}}, "The name of the method must be text, not ['hff']."),
    ],
)
def test_invalid_settings_are_refused(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        Experiment.from_mapping(mapping)
    assert message in str(error.value)


def test_changes_override_a_recipe() -> None:
    recipe = {"name": "r", "method": {"name": "hff", "temperature": 5}, "epochs": 3}
    assert overridden(recipe, {"method": {"grid": "2"}, "epochs": "4"}) == {
        "name": "r",
        "method": {"name": "hff", "temperature": 5, "grid": "2"},
        "epochs": "4",
    }


def test_selecting_another_part_drops_the_old_options_and_the_recipe_name() -> None:
    recipe = {"name": "r", "method": {"name": "hff", "temperature": 5}, "network": {"widths": [3]}}
    changed = overridden(recipe, {"method": {"name": "backprop", "head": "pool"}})
    assert changed == {"method": {"name": "backprop", "head": "pool"}, "network": {"widths": [3]}}


def test_selecting_the_same_part_keeps_its_options() -> None:
    recipe = {"name": "r", "method": {"name": "hff", "temperature": 5}}
    assert overridden(recipe, {"method": {"name": "hff"}}) == recipe
    assert overridden({"name": "r"}, {"method": {"name": "hff"}})["name"] == "r"


def test_the_seed_determines_weights_and_validation_split() -> None:
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


def test_a_loaded_method_has_the_accuracy_of_the_summary(tmp_path: Path) -> None:
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
    assert Experiment.from_run(run) == experiment.for_data(data)
    assert resume(run) == summary


class BatchSizes(Listener):
    def __init__(self) -> None:
        self.chosen: list[int] = []

    def batch_size_chosen(self, batch_size: int) -> None:
        self.chosen.append(batch_size)


@pytest.mark.parametrize(("given", "expected", "shown"), [({}, 16, [16]), ({"batch_size": 100}, 100, [])])
def test_a_batch_size_that_is_not_given_is_chosen_for_the_data_and_saved(
    given: dict[str, Any], expected: int, shown: list[int], tmp_path: Path
) -> None:
    experiment = Experiment.from_mapping({**TINY, **given, "data": {"name": "digits", "limit": 200}})
    # The seeds of a group are saved before the data is loaded.
    assert experiment.to_mapping().get("batch_size") == given.get("batch_size")
    assert Experiment.from_mapping(experiment.to_mapping()) == experiment
    listener = BatchSizes()
    train(experiment, tmp_path / "run", device="cpu", listener=listener)
    run = Run.open(tmp_path / "run")
    assert run.config["batch_size"] == Experiment.from_run(run).training.batch_size == expected
    assert listener.chosen == shown
    _, data = experiment.build()
    steps = -(-len(data.train) // expected)
    assert run.position().samples == 2 * len(data.train)
    assert (steps >= 10) == (not given)


class StopAfterFirstEpoch(Listener):
    def epoch_ended(self, record: dict[str, Any]) -> None:
        raise KeyboardInterrupt


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping(TINY)
    with pytest.raises(KeyboardInterrupt):
        train(experiment, tmp_path / "a", device="cpu", listener=StopAfterFirstEpoch())
    resume(Run.open(tmp_path / "a"), device="cpu")
    train(experiment, tmp_path / "b", device="cpu")
    stopped, whole = load_method(Run.open(tmp_path / "a")), load_method(Run.open(tmp_path / "b"))
    for name, tensor in whole.state_dict().items():
        assert torch.equal(stopped.state_dict()[name], tensor), name


def rewritten(run: Run, **changes: Any) -> Run:
    """The run with another config, as another version would have written it."""
    path = run.folder / "config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))
    return run


def as_old_version(run: Run) -> Run:
    """The run as version 0.1.0 wrote it: with old names of options and tensors."""
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    config["schedule"] = config.pop("lr_schedule")
    config["keep_gigabytes"] = config.pop("cache_gigabytes")
    config["method"]["schedule"] = config["method"].pop("layer_order")
    (run.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    loaded = run.load()
    assert loaded is not None
    tensors, state = loaded
    assert any(name.startswith("optimizer/") for name in tensors)
    run.save({name.replace("optimizer/", "optimiser/"): t for name, t in tensors.items()}, state)
    return run


def test_a_run_of_an_older_version_is_resumed_and_evaluated(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping(TINY)
    train(experiment, tmp_path / "new", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(experiment, tmp_path / "old", device="cpu", listener=StopAfterFirstEpoch())
    old, new = as_old_version(Run.open(tmp_path / "old")), Run.open(tmp_path / "new")
    assert Experiment.from_run(old) == Experiment.from_run(new)
    resume(old, device="cpu")
    states = [load_method(run).state_dict() for run in (old, new)]
    assert all(torch.equal(states[0][name], tensor) for name, tensor in states[1].items())
    assert evaluate_run(old, device="cpu") == evaluate_run(new, device="cpu")


@pytest.mark.parametrize(
    ("changes", "setting"),
    [({"warmup": 3}, "warmup"), ({"method": {"name": "hff", "sharpness": 2}}, "method.sharpness")],
)
def test_a_run_with_a_setting_that_no_longer_exists_is_refused(
    changes: dict[str, Any], setting: str, tmp_path: Path, digits: DataSet
) -> None:
    run = Run.create(tmp_path, Experiment.from_mapping(TINY).to_mapping(), digits)
    with pytest.raises(UserError, match=f"written by an older version of hff: the setting '{setting}'"):
        resume(rewritten(run, **changes))


def test_evaluation_refuses_data_with_other_classes(tmp_path: Path, digits: DataSet) -> None:
    experiment = Experiment.from_mapping({**TINY, "epochs": 1})
    train(experiment, tmp_path, device="cpu")
    fewer = replace(digits, classes=digits.classes[:9])
    with pytest.raises(UserError, match="digits has other classes now"):
        evaluate_run(Run.open(tmp_path), data=fewer)


def test_more_epochs_train_a_finished_run_on_as_if_it_had_been_longer(tmp_path: Path) -> None:
    short, long = (Experiment.from_mapping({**TINY, "epochs": epochs}) for epochs in (1, 3))
    train(short, tmp_path / "a", device="cpu")
    run = Run.open(tmp_path / "a")
    evaluate_run(run, device="cpu")
    summary = resume(run, device="cpu", epochs=3)
    train(long, tmp_path / "b", device="cpu")
    other = Run.open(tmp_path / "b")
    assert summary["epochs"] == 3
    assert run.summary() == summary
    assert run.config == {**other.config, "name": run.config["name"]}
    assert [record["epoch"] for record in run.metrics()] == [1, 2, 3]
    assert run.evaluation("test") is None
    longer, whole = load_method(tmp_path / "a").state_dict(), load_method(str(tmp_path / "b")).state_dict()
    assert all(torch.equal(longer[name], tensor) for name, tensor in whole.items())


def test_epochs_that_do_not_fit_a_run_are_refused(tmp_path: Path) -> None:
    train(Experiment.from_mapping({**TINY, "epochs": 2}), tmp_path / "a", device="cpu")
    with pytest.raises(UserError, match="trained for 2 epochs; give at least as many"):
        resume(Run.open(tmp_path / "a"), epochs=1)
    greedy = {**TINY, "epochs": 1, "method": {"name": "hff", "layer_order": "greedy"}}
    train(Experiment.from_mapping(greedy), tmp_path / "b", device="cpu")
    with pytest.raises(UserError, match="in several stages"):
        resume(Run.open(tmp_path / "b"), epochs=2)
    train(Experiment.from_mapping({**TINY, "seconds": 0.1}), tmp_path / "c", device="cpu")
    with pytest.raises(UserError, match="time budget"):
        resume(Run.open(tmp_path / "c"), epochs=99)
    assert Run.open(tmp_path / "a").finished


def test_a_second_process_cannot_resume_a_run(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping(TINY)
    with pytest.raises(KeyboardInterrupt):
        train(experiment, tmp_path, device="cpu", listener=StopAfterFirstEpoch())
    before = (tmp_path / "metrics.jsonl").read_text()
    with Run(tmp_path).lock, pytest.raises(UserError, match="Another process is writing to"):
        resume(Run(tmp_path), device="cpu")
    assert (tmp_path / "metrics.jsonl").read_text() == before


def test_settings_that_a_method_cannot_use_leave_no_run_folder(tmp_path: Path) -> None:
    network = {"name": "mlp", "widths": [8], "norm": "batch"}
    experiment = Experiment.from_mapping({**TINY, "network": network, "micro_batch_size": 4})
    with pytest.raises(UserError, match="cannot split a batch"):
        train(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_in_a_stage_that_the_config_does_not_have_is_refused(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping(TINY)
    with pytest.raises(KeyboardInterrupt):
        train(experiment, tmp_path, device="cpu", listener=StopAfterFirstEpoch())
    run = Run.open(tmp_path)
    loaded = run.load()
    assert loaded is not None
    tensors, state = loaded
    run.save(tensors, {**state, "position": {**state["position"], "stage": 7}})
    with pytest.raises(UserError, match="does not fit its config: it is in stage 8, but the training has 1"):
        resume(run, device="cpu")


@pytest.mark.parametrize("name", [{}, ["hff"], 3, None])
def test_a_saved_name_that_is_not_text_is_refused(name: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="The name of the method must be text"):
        Experiment.from_saved({"method": {"name": name}}, tmp_path)
