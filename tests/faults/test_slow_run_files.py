"""Damage to the files of a run: refused in one sentence, or accepted without harm; never in a checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from damage import damaged
from mutations import BYTES, TEXT, yaml_payload
from safetensors.torch import save
from worker import Silent, assert_harmless

from hff.data import DataSet
from hff.experiment import Experiment, resume
from hff.methods.early_exit import EarlyExit, Guarantee
from hff.prediction import predict
from hff.trained import evaluate_run, load_method
from hff.training import Listener, Run, checkpoint
from hff.training.curves import accuracy_curves

pytestmark = pytest.mark.slow

CHECKPOINT = "checkpoint.safetensors"


class Stop(Listener):
    """Ends a training after one epoch: damaged settings may ask for many more."""

    def epoch_ended(self, record: dict[str, Any]) -> None:
        raise StopIteration


def resumed(run: Run, data: DataSet) -> None:
    try:
        resume(run, data=data, device="cpu", listener=Stop())
    except StopIteration:
        return


@pytest.mark.mutations(900)
def test_a_damaged_checkpoint_is_never_accepted(folder: Path, few_digits: DataSet, count: int) -> None:
    folder /= "stopped"
    tensors, state = checkpoint.load(folder / CHECKPOINT)

    def load(folder: Path) -> None:
        found, found_state = Run(folder).load() or ({}, {})
        # Only spaces of the header may change without any effect.
        same = found.keys() == tensors.keys() and all(torch.equal(t, found[n]) for n, t in tensors.items())
        if not same or found_state != state:
            raise Silent("the tensors or the state differ")

    def position(folder: Path) -> None:
        if vars(Run(folder).position()) != state["position"]:
            raise Silent("the position differs")

    def load_and_build(folder: Path) -> None:
        load(folder)
        load_method(folder)

    def resume_it(folder: Path) -> None:
        load(folder)
        resumed(Run(folder), few_digits)

    reads = [load, load, load, load, position, load_and_build, resume_it]
    assert_harmless(damaged(folder, CHECKPOINT, reads, count, BYTES))


@pytest.mark.mutations(200)
def test_checkpoints_without_a_checksum_do_no_harm(folder: Path, few_digits: DataSet, count: int) -> None:
    """Those of version 0.1.0. Damage to their weights cannot be noticed, only damage to their structure."""
    folder /= "stopped"
    tensors, state = checkpoint.load(folder / CHECKPOINT)
    old = save(tensors, {"state": json.dumps(state)})

    def resume_it(folder: Path) -> None:
        resumed(Run(folder), few_digits)

    def load(folder: Path) -> None:
        load_method(folder)

    header = int.from_bytes(old[:8], "little")

    def with_tensors(damaged_header: bytes) -> bytes:
        return len(damaged_header).to_bytes(8, "little") + damaged_header + old[8 + header :]

    reads = [resume_it, load]
    assert_harmless(damaged(folder, CHECKPOINT, reads, count // 2, BYTES, inner=old))
    inner = old[8 : 8 + header]
    assert_harmless(damaged(folder, CHECKPOINT, reads, count // 2, TEXT, inner=inner, wrap=with_tensors))


@pytest.mark.mutations(150)
def test_a_damaged_state_with_the_right_checksum_does_no_harm(
    folder: Path, few_digits: DataSet, count: int
) -> None:
    folder /= "stopped"
    tensors, state = checkpoint.load(folder / CHECKPOINT)

    def wrap(changed: bytes) -> bytes:
        text = changed.decode("utf-8", errors="replace")
        sums = {"state_checksum": checkpoint._state_checksum(text)}
        return save(tensors, {"state": text, "checksum": checkpoint._checksum(tensors, text), **sums})

    def position(folder: Path) -> None:
        Run(folder).position()

    def resume_it(folder: Path) -> None:
        resumed(Run(folder), few_digits)

    inner = json.dumps(state).encode()
    cases = damaged(folder, CHECKPOINT, [position, resume_it], count, TEXT, inner=inner, wrap=wrap)
    assert_harmless(cases)


@pytest.mark.mutations(250)
def test_a_damaged_config_does_no_harm(folder: Path, few_digits: DataSet, marker: Path, count: int) -> None:
    def experiment(folder: Path) -> None:
        Experiment.from_run(Run.open(folder))

    def load(folder: Path) -> None:
        load_method(folder)

    def resume_it(folder: Path) -> None:
        resumed(Run.open(folder), few_digits)

    def evaluate(folder: Path) -> None:
        evaluate_run(Run.open(folder), "validation", data=few_digits, device="cpu")

    reads = [experiment, load, resume_it, evaluate]
    kinds = (*TEXT, yaml_payload(marker))
    assert_harmless(damaged(folder / "stopped", "config.yaml", reads, count, kinds), marker)


@pytest.mark.mutations(200)
def test_damaged_data_facts_do_no_harm(folder: Path, few_digits: DataSet, count: int) -> None:
    def facts(folder: Path) -> None:
        run = Run.open(folder)
        assert run.classes
        assert run.preprocessing.size

    def load(folder: Path) -> None:
        load_method(folder)

    def evaluate(folder: Path) -> None:
        evaluate_run(Run.open(folder), "test", data=few_digits, device="cpu")

    cases = damaged(folder / "finished", "data.json", [facts, facts, load, evaluate], count, TEXT)
    assert_harmless(cases)


@pytest.mark.mutations(100)
@pytest.mark.parametrize(
    "file", ["summary.json", "eval-test.json", "cost.json", "failure.json", "environment.json"]
)
def test_damaged_results_do_no_harm(file: str, folder: Path, few_digits: DataSet, count: int) -> None:
    def results(folder: Path) -> None:
        run = Run.open(folder)
        run.summary()
        run.evaluation("test")
        run.cost()
        run.failure()

    def resume_it(folder: Path) -> None:
        resumed(Run.open(folder), few_digits)

    def add_cost(folder: Path) -> None:
        Run.open(folder).add_cost({"peak_memory": 1})

    assert_harmless(damaged(folder / "finished", file, [results, resume_it, add_cost], count, TEXT))


@pytest.mark.mutations(150)
def test_a_damaged_calibration_does_no_harm(folder: Path, few_digits: DataSet, count: int) -> None:
    inputs = few_digits.train.fetch(torch.arange(2))

    def predict_two(folder: Path) -> None:
        assert len(predict(folder, inputs, device="cpu")) == 2

    def evaluate(folder: Path) -> None:
        evaluate_run(Run.open(folder), "test", data=few_digits, device="cpu")

    cases = damaged(folder / "finished", "calibration.json", [predict_two, evaluate], count, TEXT)
    assert_harmless(cases)


@pytest.mark.mutations(100)
def test_damaged_thresholds_of_early_exit_do_no_harm(folder: Path, few_digits: DataSet, count: int) -> None:
    thresholds = EarlyExit({0: 0.9}, {0: 1.5}, Guarantee(0.02, 0.05, 480, 1, 4))
    Run.open(folder / "finished").save_early_exit(thresholds)
    x = few_digits.preprocessing(few_digits.train.fetch(torch.arange(2)))

    def predict_two(folder: Path) -> None:
        assert len(load_method(folder).predict(x, early_exit=True)) == 2

    assert_harmless(damaged(folder / "finished", "early-exit.json", [predict_two], count, TEXT))


@pytest.mark.mutations(200)
def test_damaged_metrics_do_no_harm(folder: Path, few_digits: DataSet, count: int) -> None:
    def metrics(folder: Path) -> None:
        accuracy_curves(Run.open(folder).metrics())

    def resume_it(folder: Path) -> None:
        resumed(Run.open(folder), few_digits)

    cases = damaged(folder / "stopped", "metrics.jsonl", [metrics, metrics, resume_it], count, TEXT)
    assert_harmless(cases)
