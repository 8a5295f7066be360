"""`hff explain`, `hff plot` and the last lines of `hff train`."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hff.cli import main
from hff.cli.plot import WHAT
from hff.report.drawings import DRAWINGS

TINY = ["--network.widths", "32,16", "--epochs", "1"]
Answer = Callable[[list[str]], Any]


def test_explain_draws_the_maps_of_images(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(run), str(images), "--out", "maps.png"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["image", "class", "layer", "0", "layer", "1"]
    assert "add up to the score" in printed
    assert np.asarray(Image.open("maps.png")).std() > 5


def test_the_maps_in_the_json_document_sum_to_the_scores(run: Path, answer: Answer) -> None:
    found = answer(["explain", str(run), "--kind", "wrong", "--count", "2"])
    assert found["how"] == "exact"
    assert len(found["images"]) == 2
    for image in found["images"]:
        assert image["class"] != image["label"]
        for layer in image["layers"]:
            assert np.sum(layer["map"]) == pytest.approx(layer["score"], abs=1e-4)
            assert np.shape(layer["map"]) == (8, 8)
            assert layer["explained"] == layer["class"]


def test_arrays_are_written_to_an_npz_file(run: Path, images: Path) -> None:
    assert main(["explain", str(run), str(images), "--class", "7", "--out", "maps.npz"]) == 0
    with np.load("maps.npz") as found:
        assert found["layer0_classes"].tolist() == [7, 7, 7]
        assert np.allclose(found["layer1_positions"].sum((1, 2)), found["layer1_scores"], atol=1e-5)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "Give either images or --kind"),
        (["--kind", "wrong", "--out", "maps.gif"], "must be a .png, .svg or .npz file"),
        (["--kind", "wrong", "--count", "0"], "--count must be at least 1"),
        (["nothing.png"], "There is no file or folder nothing.png"),
    ],
)
def test_explain_refuses_in_one_sentence(
    run: Path, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(run), *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    "what", ["curves", "layers", "confusion", "maps", "embedding", "hardest", "calibration"]
)
def test_plot_draws_each_figure(run: Path, what: str, answer: Answer) -> None:
    found = answer(["plot", what, str(run), "--projection", "pca", "--out", f"{what}.png"])
    assert found["figure"] == f"{what}.png"
    assert len(found["alt"]) > 40
    assert np.asarray(Image.open(f"{what}.png").convert("L")).std() > 5


def test_the_help_of_plot_lists_every_figure() -> None:
    assert list(WHAT) == list(DRAWINGS)


def test_plot_writes_svg_with_text(run: Path, answer: Answer) -> None:
    answer(["plot", "layers", str(run), "--out", "layers.svg"])
    texts = {each.text for each in ElementTree.parse("layers.svg").iter() if each.tag.endswith("}text")}
    assert {"layer", "test accuracy (%)"} <= texts


def test_plot_refuses_in_one_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "maps", str(run), "--out", "maps.pdf"]) == 2
    assert "must be a .png or .svg file" in capsys.readouterr().err
    assert main(["plot", "maps", "."]) == 2
    assert "is not a folder of a run" in capsys.readouterr().err
    assert main(["plot", "embedding", str(run), "--epochs", "3"]) == 1
    assert "has no checkpoint of epoch 3" in capsys.readouterr().err


def test_train_says_how_to_get_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "--out", "run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("report run")
