"""`hff.predict`: runs, folders and methods as sources; files and arrays as inputs."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import hff
from hff.data import DataSet, Preprocessing
from hff.errors import UserError
from hff.experiment import Experiment, train
from hff.prediction import Prediction, predict
from hff.run_group import RunGroup
from hff.trained import evaluate_run, load_method
from hff.training import Run

TINY = Experiment.from_mapping({"network": {"name": "mlp", "widths": [48, 32]}, "epochs": 6})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(TINY, folder, device="cpu")
    return Run.open(folder)


@pytest.fixture(scope="module")
def stored(digits: DataSet) -> torch.Tensor:
    """The test images of digits as they are stored [N, 1, 8, 8]."""
    assert digits.test is not None
    return digits.test.fetch(torch.arange(len(digits.test)))


def test_predictions_have_the_accuracy_of_the_evaluation(
    run: Run, stored: torch.Tensor, digits: DataSet
) -> None:
    predictions = hff.predict(run, stored, device="cpu", batch_size=100)
    result = evaluate_run(run, device="cpu")
    assert digits.test is not None
    labels = digits.test.labels.tolist()

    def accuracy(indices: list[int]) -> float:
        return sum(a == b for a, b in zip(indices, labels, strict=True)) / len(labels)

    assert accuracy([each.index for each in predictions]) == result.accuracy
    for number, layer in enumerate(result.layers):
        opinions = [each.layers[number] for each in predictions]
        assert {each.layer for each in opinions} == {layer.layer}
        assert accuracy([each.index for each in opinions]) == layer.accuracy
    assert all(each.label == digits.classes[each.index] and each.file is None for each in predictions)
    # The read-out of this run is its last layer.
    assert all(each.score == each.layers[-1].score for each in predictions)


def test_a_run_a_path_and_a_method_agree(run: Run, stored: torch.Tensor) -> None:
    expected = predict(run, stored[:5])
    assert predict(run.folder, stored[:5]) == predict(str(run.folder), stored[:5]) == expected
    method = load_method(run).train()
    assert predict(method, stored[:5], calibration=run.calibration) == expected
    assert method.training
    method.preprocessing = method.class_names = None
    unnamed = predict(method, run.preprocessing(stored[:5]), calibration=run.calibration)
    assert unnamed == [numbered(each) for each in expected]
    normalized = run.preprocessing(stored[:5]).double().numpy()
    assert predict(method, normalized, calibration=run.calibration) == unnamed


def numbered(prediction: Prediction) -> Prediction:
    """The prediction with indices in place of class names."""
    layers = tuple(replace(each, label=each.index) for each in prediction.layers)
    top = tuple(replace(each, label=each.index) for each in prediction.top)
    return replace(prediction, label=prediction.index, layers=layers, top=top)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64, np.float32, np.float64])
def test_arrays_may_have_channels_last_or_none_and_any_type(
    run: Run, stored: torch.Tensor, dtype: type
) -> None:
    images = stored[:4].numpy().astype(dtype)
    expected = [each.index for each in predict(run, stored[:4])]
    for layout in (
        images,
        images.transpose(0, 2, 3, 1),
        images[:, 0],
        list(images),
        list(torch.tensor(images.astype(int))),
    ):
        assert [each.index for each in predict(run, layout)] == expected
    assert predict(run, images[:0]) == []


def test_color_images_may_have_channels_last(digits: DataSet) -> None:
    method = Experiment.from_mapping({"network": {"name": "mlp", "widths": [8]}}).create_method((3, 4, 5), 10)
    images = torch.randint(256, (6, 3, 4, 5), dtype=torch.uint8)
    preprocessing = Preprocessing((0.5,) * 3, (0.2,) * 3, 255.0, (3, 4, 5))
    expected = predict(method, images, preprocessing=preprocessing)
    assert predict(method, images.permute(0, 2, 3, 1).numpy(), preprocessing=preprocessing) == expected


def test_rows_of_a_table(tmp_path: Path) -> None:
    labels = np.arange(120) % 3
    x = np.random.default_rng(0).normal(size=(120, 5)) + 3 * labels[:, None]
    np.savez(tmp_path / "table.npz", x=x, y=np.array(["a", "b", "c"])[labels])
    data = {"name": "npz", "path": str(tmp_path / "table.npz")}
    mapping = {"data": data, "network": {"name": "mlp", "widths": [16]}, "epochs": 20, "learning_rate": 0.01}
    train(Experiment.from_mapping(mapping), tmp_path / "run", device="cpu")
    predictions = predict(tmp_path / "run", x)
    assert np.mean([each.index == label for each, label in zip(predictions, labels, strict=True)]) > 0.6
    assert {each.label for each in predictions} <= {"a", "b", "c"}
    with pytest.raises(UserError, match=r"must have the shape \[5\], not \[4\]"):
        predict(tmp_path / "run", x[:, :4])


def test_files_and_folders_are_read_in_order(run: Run, stored: torch.Tensor, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    names = ["a.png", "b.png", "more/c.png"]
    for name, image in zip(names, stored[:3], strict=True):
        Image.fromarray((image[0].float() * 255 / 16).round().byte().numpy()).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not an image")
    predictions = predict(run, [tmp_path, tmp_path / "a.png"])
    assert [each.file for each in predictions] == [tmp_path / name for name in [*names, "a.png"]]
    assert [each.index for each in predictions[:3]] == [each.index for each in predict(run, stored[:3])]
    (single,) = predict(run, str(tmp_path / "a.png"))
    assert (single.file, single.index) == (tmp_path / "a.png", predictions[0].index)
    method = load_method(run)
    assert len(predict(method, tmp_path)) == 3
    method.preprocessing = None
    with pytest.raises(UserError, match="Image files need the preprocessing"):
        predict(method, tmp_path)
    assert len(predict(method, tmp_path, preprocessing=run.preprocessing)) == 3


def test_mistakes_are_named(run: Run, stored: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run folder"):
        predict(tmp_path, stored)
    with pytest.raises(UserError, match="There is no file or folder"):
        predict(run, tmp_path / "nothing.png")
    with pytest.raises(UserError, match="contains no images"):
        predict(run, tmp_path)
    with pytest.raises(UserError, match=r"must have the shape \[1, 8, 8\], not \[1, 8, 7\]"):
        predict(run, stored[..., :7])
    with pytest.raises(UserError, match="must be numbers, image files or folders"):
        predict(run, np.array(["a"]))
    with pytest.raises(UserError, match="must have the same shape"):
        predict(run, [[1, 2], [3]])
    with pytest.raises(UserError, match="predicts 10 classes, but 2 names"):
        predict(run, stored, classes=["a", "b"])
    with pytest.raises(UserError, match="batch_size must be a whole number of at least 1"):
        predict(run, stored, batch_size=0)


def test_a_group_is_refused_with_one_of_its_runs(tmp_path: Path) -> None:
    group = RunGroup.create(tmp_path, replace(TINY, training=replace(TINY.training, epochs=1)), (4,))
    with pytest.raises(
        UserError, match="contains runs with several seeds; choose one of them after training"
    ):
        predict(tmp_path, tmp_path)
    group.train(device="cpu")
    with pytest.raises(UserError, match=r"several seeds; choose one of them, such as .*seed-4"):
        predict(tmp_path, tmp_path)


def test_probabilities_are_those_of_the_calibration(run: Run, stored: torch.Tensor) -> None:
    calibration = run.calibration
    assert calibration is not None
    method = load_method(run)
    with torch.no_grad():
        scores = dict(method.layer_scores(run.preprocessing(stored[:6])))
    predictions = predict(run, stored[:6], top_k=3)
    for layer, each in scores.items():
        expected = calibration.probabilities(each, layer).max(1).values.tolist()
        assert [p.layers[layer].probability for p in predictions] == pytest.approx(expected)
    for i, prediction in enumerate(predictions):
        best = calibration.probabilities(scores[1]).topk(3)
        assert [each.index for each in prediction.top] == best.indices[i].tolist()
        assert [each.probability for each in prediction.top] == pytest.approx(best.values[i].tolist())
        assert prediction.probability == prediction.top[0].probability
    for wrong in (0, 11):
        with pytest.raises(UserError, match="top_k must be 1 to 10"):
            predict(run, stored[:1], top_k=wrong)


def test_a_run_without_calibration_is_calibrated_on_its_data_or_has_no_probabilities(
    run: Run, stored: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run.folder, tmp_path / "copy")
    copy = Run.open(tmp_path / "copy")
    (copy.folder / "calibration.json").unlink()

    def gone(*_: object, **__: object) -> DataSet:
        raise UserError("The data is not there.")

    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "load_data", gone)
        (prediction,) = predict(copy, stored[:1])
        assert prediction.probability is None
        assert prediction.layers[0].probability is None
    assert predict(copy, stored[:1]) == predict(run, stored[:1])
    assert copy.calibration == run.calibration


def test_the_rows_of_an_npz_file(run: Run, stored: torch.Tensor, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=stored[:3, 0].numpy())
    predictions = predict(run, tmp_path / "rows.npz")
    assert [(each.file, each.row) for each in predictions] == [
        (tmp_path / "rows.npz", row) for row in range(3)
    ]
    assert [each.index for each in predictions] == [each.index for each in predict(run, stored[:3])]
    np.savez(tmp_path / "other.npz", y=stored.numpy())
    with pytest.raises(UserError, match="does not hold an array 'x'"):
        predict(run, tmp_path / "other.npz")


def test_an_image_that_is_dark_on_white_is_noted_and_can_be_inverted(
    run: Run, stored: torch.Tensor, tmp_path: Path
) -> None:
    pixels = (stored[:4, 0].float() * 255 / 16).round().byte().numpy()
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"bright-{i}.png")
        Image.fromarray(255 - image).save(tmp_path / f"dark-{i}.png")
    predictions = predict(run, tmp_path)
    notes = {each.file.name: each.note for each in predictions if each.file}
    assert all((note != "") == name.startswith("dark") for name, note in notes.items())
    assert notes["dark-0.png"].startswith("much brighter")
    assert notes["dark-0.png"].endswith("with --invert")
    inverted = predict(run, sorted(tmp_path.glob("dark-*")), invert=True)
    assert [each.index for each in inverted] == [each.index for each in predictions[:4]]
    assert all(each.note == "" for each in inverted)
