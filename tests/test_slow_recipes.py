"""Every recipe takes a training step at its full size, and the default recipe learns."""

import json
from pathlib import Path

import pytest
import torch

from hff.bench.cost import random_batch
from hff.cli import main
from hff.data import datasets
from hff.experiment import Experiment
from hff.recipes import read, recipes
from hff.training import Trainer


@pytest.mark.slow
@pytest.mark.parametrize("name", recipes())
def test_one_training_step_at_full_size(name: str) -> None:
    experiment = Experiment.from_mapping(read(name))
    info = datasets[experiment.data.name]
    assert info.in_shape is not None
    assert info.classes is not None
    method = experiment.create_method(info.in_shape, info.classes)
    batch = random_batch(info.in_shape, info.classes, 4, views=method.views)
    losses = Trainer(method, experiment.training).step(batch)
    assert losses
    assert all(torch.isfinite(loss) for loss in losses.values())
    with torch.no_grad():
        assert torch.isfinite(method.eval()(batch.x)).all()


@pytest.mark.slow
def test_the_default_recipe_learns_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--quiet", "--out", str(tmp_path / "run")]) == 0
    assert main(["eval", str(tmp_path / "run"), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["accuracy"] > 0.95
    assert all(layer["bits"] > 2.5 for layer in measured["layers"])
