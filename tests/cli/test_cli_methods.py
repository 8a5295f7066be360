"""Every registered method can be trained, measured and asked by the same commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hff.methods import methods
from hff.networks import create_network

Answer = Callable[[list[str]], Any]


@pytest.mark.parametrize("name", methods)
def test_train_eval_and_predict(
    name: str, answer: Answer, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The picture of the curves has tests of its own.
    monkeypatch.setattr("hff.training.curves.draw_curves", lambda run: None)
    flags = ["--network.widths", "24,16"]
    if methods[name].unsupported_reason(create_network("mlp", (1, 8, 8), 10, widths=(24, 16)), 10):
        flags = ["--network", "cnn", "--network.channels", "10,20"]
    out = str(tmp_path / "run")
    budget = ["--epochs", "1", "--data.limit", "128"]
    summary = answer(["train", "--method", name, *flags, *budget, "--out", out])
    assert summary["method"] == name
    measured = answer(["eval", out])
    assert measured["samples"] == 360
    assert measured["layers"]
    predicted = answer(["predict", out, str(images)])["predictions"]
    assert len(predicted) == 3
    assert all(each["class"] in measured["classes"] for each in predicted)
    assert [layer["layer"] for layer in predicted[0]["layers"]] == [r["layer"] for r in measured["layers"]]
    # All three images are the same, so whoever else is in the batch must not matter.
    assert len({(each["class"], each["score"]) for each in predicted}) == 1
