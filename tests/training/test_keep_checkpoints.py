"""Weights that are kept after some epochs."""

from pathlib import Path

import pytest
import torch

import hff
from hff.data import DataSet
from hff.errors import UserError
from hff.experiment import Experiment, resume, train
from hff.trained import load_method

SMALL = {
    "method": "hff",
    "network": {"name": "mlp", "widths": (16,)},
    "epochs": 3,
    "keep_checkpoints": [1, 3],
}


def test_the_weights_of_the_named_epochs_are_kept(tmp_path: Path, digits: DataSet) -> None:
    train(Experiment.from_mapping(SMALL), tmp_path / "long", data=digits)
    short = {**SMALL, "epochs": 1, "keep_checkpoints": []}
    train(Experiment.from_mapping(short), tmp_path / "short", data=digits)
    run = hff.Run(tmp_path / "long")
    assert run.kept_epochs() == [1, 3]
    first, last = load_method(run, epoch=1).state_dict(), load_method(run).state_dict()
    assert all(v.equal(first[name]) for name, v in load_method(tmp_path / "short").state_dict().items())
    assert all(v.equal(last[name]) for name, v in load_method(run, epoch=3).state_dict().items())
    assert not first["blocks.0.affine.weight"].equal(last["blocks.0.affine.weight"])
    with pytest.raises(UserError, match=r"no checkpoint of epoch 2 \(kept: 1, 3\)"):
        load_method(run, epoch=2)


def test_a_run_that_is_trained_on_keeps_its_checkpoints(tmp_path: Path, digits: DataSet) -> None:
    train(Experiment.from_mapping({**SMALL, "keep_checkpoints": [2]}), tmp_path / "run", data=digits)
    run = hff.Run(tmp_path / "run")
    before = load_method(run, epoch=2).state_dict()
    resume(run, data=digits, epochs=4)
    assert all(torch.equal(v, before[k]) for k, v in load_method(run, epoch=2).state_dict().items())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_checkpoints": [0]}, "from 1 on"),
        ({"keep_checkpoints": [4]}, "names epoch 4, but the training has 3 epochs"),
        ({"keep_checkpoints": [1], "seconds": 5.0}, "a time budget does not"),
    ],
)
def test_epochs_that_cannot_be_kept_are_refused(
    tmp_path: Path, digits: DataSet, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        train(Experiment.from_mapping({**SMALL, **settings}), tmp_path / "run", data=digits)
    assert not (tmp_path / "run").exists()
