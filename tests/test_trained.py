"""Evaluation of runs: on their own data, on data that has moved, and on new labeled data."""

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hff.data import DataSet, load_data
from hff.errors import UserError
from hff.experiment import Experiment, train
from hff.trained import calibration_of, evaluate_run, load_method
from hff.training import Run


def write_images(folder: Path, classes: dict[str, tuple[int, int, int]], count: int, seed: int) -> None:
    """Images of one color per class, with noise."""
    numbers = np.random.default_rng(seed)
    for name, color in classes.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.array(color) + numbers.normal(0, 40, (12, 12, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{i}.png")


COLORS = {"blue": (40, 40, 200), "green": (40, 200, 40), "red": (200, 40, 40)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run, and the folder of photographs that it was trained on."""
    folder = tmp_path_factory.mktemp("trained")
    write_images(folder / "photos", COLORS, 20, seed=0)
    mapping = {"data": {"name": "folder", "path": str(folder / "photos")}, "epochs": 6, "batch_size": 8}
    mapping["network"] = {"name": "cnn", "channels": [8, 8]}
    train(Experiment.from_mapping(mapping), folder / "run", device="cpu")
    return Run.open(folder / "run"), folder / "photos"


def test_an_image_folder_gets_a_convolutional_network_by_default() -> None:
    for data in ("folder", "cifar10", "imagenet"):
        assert Experiment.from_mapping({"data": {"name": data}}).network.name == "cnn"
    assert Experiment.from_mapping({"data": "mnist"}).network.name == "mlp"
    assert Experiment.from_mapping({"data": "cifar10", "network": {"channels": [8]}}).network.name == "cnn"
    assert Experiment.from_mapping({"data": "cifar10", "network": "mlp"}).network.name == "mlp"


def test_a_run_is_calibrated_when_it_is_trained(trained: tuple[Run, Path]) -> None:
    run, _ = trained
    assert run.calibration == calibration_of(run, load_method(run))


def test_data_that_has_moved_gives_the_same_evaluation(trained: tuple[Run, Path], tmp_path: Path) -> None:
    run, photos = trained
    here = evaluate_run(run, device="cpu")
    shutil.copytree(photos, tmp_path / "elsewhere")
    moved = evaluate_run(run, path=tmp_path / "elsewhere", device="cpu")
    assert moved == here
    assert moved.split == "test"


def test_new_labeled_images_of_another_size_and_some_of_the_classes(
    trained: tuple[Run, Path], tmp_path: Path
) -> None:
    run, _ = trained
    write_images(tmp_path / "new", {"green": COLORS["green"], "red": COLORS["red"]}, 9, seed=1)
    for file in (tmp_path / "new").rglob("*.png"):
        Image.open(file).resize((30, 20)).save(file)
    before = run.evaluation("all")
    result = evaluate_run(run, path=tmp_path / "new", device="cpu")
    assert (result.split, result.samples, result.classes) == ("all", 18, run.classes)
    assert [each.samples for each in result.per_class] == [0, 9, 9]
    assert result.accuracy > 0.9
    assert run.evaluation("all") == before is None


def test_gray_images_of_digits_are_scaled_like_the_data_set(tmp_path: Path, digits: DataSet) -> None:
    """The data set stores digits as 0 to 16, image files as 0 to 255."""
    experiment = Experiment.from_mapping({"network": {"name": "mlp", "widths": [48]}, "epochs": 6})
    train(experiment, tmp_path / "run", device="cpu")
    assert digits.test is not None
    stored = digits.test.fetch(torch.arange(len(digits.test)))
    for i, (image, label) in enumerate(zip(stored, digits.test.labels.tolist(), strict=True)):
        (tmp_path / "files" / str(label)).mkdir(parents=True, exist_ok=True)
        pixels = (image[0].float() * 255 / 16).round().byte().numpy()
        Image.fromarray(pixels).save(tmp_path / "files" / str(label) / f"{i}.png")
    run = Run.open(tmp_path / "run")
    result = evaluate_run(run, path=tmp_path / "files", device="cpu")
    assert result.accuracy == pytest.approx(evaluate_run(run, device="cpu").accuracy, abs=0.01)


def test_new_rows_with_some_of_the_labels(tmp_path: Path) -> None:
    labels = np.arange(150) % 3
    x = np.random.default_rng(0).normal(size=(150, 4)) + 4 * labels[:, None]
    np.savez(tmp_path / "table.npz", x=x[:90], y=labels[:90] + 1)
    mapping = {"data": {"name": "npz", "path": str(tmp_path / "table.npz")}, "epochs": 15, "batch_size": 8}
    mapping["network"] = {"name": "mlp", "widths": [16]}
    train(Experiment.from_mapping({**mapping, "learning_rate": 0.01}), tmp_path / "run", device="cpu")
    known = labels[90:] > 0
    np.savez(tmp_path / "new.npz", x=x[90:][known], y=labels[90:][known] + 1)
    result = evaluate_run(Run.open(tmp_path / "run"), path=tmp_path / "new.npz", device="cpu")
    assert [each.samples for each in result.per_class] == [0, 20, 20]
    assert result.accuracy > 0.8
    np.savez(tmp_path / "row.npz", x=x[92:93], y=labels[92:93] + 1)
    assert evaluate_run(Run.open(tmp_path / "run"), path=tmp_path / "row.npz", device="cpu").samples == 1


def test_classes_that_the_run_does_not_know_and_missing_paths_are_refused(
    trained: tuple[Run, Path], tmp_path: Path
) -> None:
    run, _ = trained
    write_images(tmp_path / "new", {"red": COLORS["red"], "yellow": (200, 200, 40)}, 3, seed=2)
    with pytest.raises(UserError, match="classes that the method does not know: 'yellow'"):
        evaluate_run(run, path=tmp_path / "new")
    with pytest.raises(UserError, match="There is no file or folder"):
        evaluate_run(run, path=tmp_path / "nowhere")


def test_new_labeled_images_of_a_single_class(trained: tuple[Run, Path], tmp_path: Path) -> None:
    run, _ = trained
    write_images(tmp_path / "one", {"red": COLORS["red"]}, 1, seed=4)
    write_images(tmp_path / "some", {"red": COLORS["red"]}, 5, seed=4)
    (tmp_path / "none").mkdir()
    assert evaluate_run(run, path=tmp_path / "one").samples == 1
    result = evaluate_run(run, path=tmp_path / "some")
    assert result.samples == 5
    assert result.accuracy == result.balanced_accuracy == result.per_class[2].recall
    with pytest.raises(UserError, match="none must hold a folder of images for each of the classes"):
        evaluate_run(run, path=tmp_path / "none")


def test_the_message_for_data_that_has_moved_asks_for_its_path(
    trained: tuple[Run, Path], tmp_path: Path
) -> None:
    run, photos = trained
    shutil.copytree(run.folder, tmp_path / "run")
    config = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(config.replace(str(photos), str(tmp_path / "gone")))
    with pytest.raises(
        UserError, match=r"no longer at .*gone; give the path where it is now \(--data.path\)"
    ):
        evaluate_run(Run.open(tmp_path / "run"))


def test_a_run_without_calibration_and_without_its_data_evaluates_new_data(
    trained: tuple[Run, Path], tmp_path: Path
) -> None:
    run, photos = trained
    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run" / "calibration.json").unlink()
    config = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(config.replace(str(photos), str(tmp_path / "gone")))
    write_images(tmp_path / "new", COLORS, 4, seed=3)
    assert evaluate_run(Run.open(tmp_path / "run"), path=tmp_path / "new").samples == 12


def test_data_that_has_changed_since_the_training_is_warned_about(digits: DataSet, tmp_path: Path) -> None:
    experiment = Experiment.from_mapping({"network": {"name": "mlp", "widths": [8]}, "epochs": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(experiment, tmp_path, device="cpu")
    run = Run.open(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_run(run)
    assert digits.test is not None
    changed = replace(digits, test=digits.test.subset(torch.arange(100)))
    with pytest.warns(UserWarning, match="The data has changed since"):
        evaluate_run(run, data=changed)


def test_the_fingerprint_depends_on_labels_and_values_and_not_on_the_place(digits: DataSet) -> None:
    assert load_data("digits").fingerprint == digits.fingerprint
    assert load_data("digits", seed=1).fingerprint != digits.fingerprint
    other = digits.train.with_labels(digits.train.labels.flip(0))
    assert replace(digits, train=other).fingerprint != digits.fingerprint
