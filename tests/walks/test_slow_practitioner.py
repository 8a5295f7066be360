"""A practitioner: own photographs and an own table, to predictions on new data in at most four commands."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images, load_wine
from walks.conftest import Shell, suggested

pytestmark = pytest.mark.slow


def write_photographs(folder: Path, count: int, seed: int) -> None:
    """Crops of two photographs as JPEG files: a temple and a flower."""
    numbers = np.random.default_rng(seed)
    for name, photograph in zip(("temple", "flower"), load_sample_images().images, strict=True):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            size = int(numbers.integers(120, 240))
            top, left = (int(numbers.integers(0, side - size)) for side in photograph.shape[:2])
            crop = Image.fromarray(photograph[top : top + size, left : left + size])
            crop.resize((size, size * 3 // 4)).save(folder / name / f"{i}.jpg")


def test_from_a_folder_of_photographs_to_predictions_in_four_commands(shell: Shell) -> None:
    write_photographs(shell.folder / "photos", 40, seed=0)
    write_photographs(shell.folder / "new", 5, seed=1)
    # The first guess of a user fails with the command that works.
    refused = shell.run("hff train photos", code=2)
    trained = shell.run(suggested(refused, "train"))
    assert "80 images in 2 classes" in trained
    assert "scaled to 64x64 pixels" in " ".join(trained.split())
    assert "The batch size for 58 examples is 8 (--batch-size sets another)." in trained
    assert "folder_cnn_hff" in trained
    evaluated = shell.run(suggested(trained, "eval"))
    assert re.search(r"class +samples +precision +recall +F1", evaluated)
    predicted = shell.run(suggested(trained, "predict").replace("FILE", "new") + " --out answers.csv")
    assert predicted.startswith("10 predictions are in answers.csv")
    assert shell.commands == 4
    answers = list(csv.DictReader((shell.folder / "answers.csv").read_text().splitlines()))
    right = [answer["class"] == Path(answer["file"]).parent.name for answer in answers]
    assert sum(right) >= 8
    assert all(0.5 <= float(answer["probability"]) <= 1 for answer in answers)


def test_a_folder_as_people_have_it(shell: Shell) -> None:
    """Nested folders, a validation folder, a damaged image, a format that is not supported, imbalance."""
    photos = shell.folder / "photos"
    write_photographs(photos / "train", 30, seed=0)
    write_photographs(photos / "valid", 5, seed=1)
    nested = photos / "train/flower/images"
    nested.mkdir()
    for i in range(25):
        (photos / f"train/flower/{i}.jpg").unlink()
    for i in range(25, 29):
        (photos / f"train/flower/{i}.jpg").rename(nested / f"{i}.jpg")
    (photos / "train/temple/broken.jpg").write_bytes(b"not an image")
    (photos / "train/temple/modern.avif").write_bytes(b"ftypavif")
    command = "hff train --data folder --data.path photos --data.size 32 --epochs 3"
    refused = shell.run(command, code=2)
    assert "broken.jpg" in refused
    assert "--data.bad-images skip" in refused
    trained = shell.run(f"{command} --data.bad-images skip --balance-classes true")
    for expected in ("broken.jpg", "1 .avif", "imbalanced", "validation 10 examples", "fewer than 10"):
        assert expected in " ".join(trained.split())
    write_photographs(shell.folder / "more", 6, seed=2)
    evaluated = shell.run(suggested(trained, "eval") + " --data.path more")
    assert "all examples: " in evaluated
    assert "of 12 samples" in evaluated
    photos.rename(shell.folder / "moved")
    moved = shell.run(suggested(trained, "eval") + " --data.path moved --split validation")
    assert "of 10 samples" in moved


def test_from_a_table_to_predictions_in_four_commands(shell: Shell) -> None:
    wine = load_wine()
    order = np.random.default_rng(0).permutation(len(wine.data))
    known, new = order[:150], order[150:]
    words = np.array(["barolo", "grignolino", "barbera"])[wine.target]
    np.savez(shell.folder / "wine.npz", x=wine.data[known], y=words[known])
    np.savez(shell.folder / "new.npz", x=wine.data[new])
    refused = shell.run("hff train wine.npz", code=2)
    trained = shell.run(suggested(refused, "train"))
    shell.run(suggested(trained, "eval"))
    shell.run(suggested(trained, "predict").replace("FILE", "new.npz") + " --out answers.csv")
    assert shell.commands == 4
    answers = list(csv.DictReader((shell.folder / "answers.csv").read_text().splitlines()))
    right = [answer["class"] == word for answer, word in zip(answers, words[new], strict=True)]
    assert np.mean(right) > 0.85
