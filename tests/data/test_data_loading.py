"""`load_data`, from tiny files."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_files import ChangeSource, cifar_rows, idx, write_cifar10, write_mnist

from hff.data import Augmentation, Batches, DataSet, Download, TensorExamples, datasets, load_data, status
from hff.data.readers.idx import IDX_FILES
from hff.errors import UserError


def stored(examples: object) -> torch.Tensor:
    assert isinstance(examples, TensorExamples)
    return examples.x


def test_digits() -> None:
    data = load_data("digits", validation=100)
    info = datasets["digits"]
    assert data.validation is not None
    assert data.test is not None
    assert len(data.train) + len(data.validation) == info.train_size
    assert len(data.test) == info.test_size
    assert data.in_shape == info.in_shape == (1, 8, 8)
    assert int(stored(data.train).max()) == 16
    x = torch.cat([batch.x for batch in Batches.in_order(data.train, data.preprocessing, 500).epoch(0)])
    assert abs(float(x.mean())) < 1e-5
    assert abs(float(x.std()) - 1) < 1e-3
    again = load_data("digits", validation=100, seed=1)
    assert torch.equal(stored(again.test), stored(data.test))
    assert not torch.equal(stored(again.validation), stored(data.validation))


@pytest.mark.parametrize("compressed", [False, True])
def test_mnist(tmp_path: Path, compressed: bool) -> None:
    arrays = write_mnist(tmp_path / "mnist", compressed=compressed)
    data = load_data("mnist", data_dir=tmp_path, validation=0)
    np.testing.assert_array_equal(stored(data.train)[:, 0].numpy(), arrays[IDX_FILES[0]])
    np.testing.assert_array_equal(stored(data.test)[:, 0].numpy(), arrays[IDX_FILES[2]])
    assert data.train.labels.tolist() == arrays[IDX_FILES[1]].tolist()
    assert data.validation is None
    assert data.augmentation == Augmentation.none()
    assert data.preprocessing.mean == (0.1307,)


def test_fashion_mnist_is_not_read_from_the_folder_of_mnist(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    assert status("mnist", tmp_path)["path"] == str(tmp_path / "mnist")
    assert status("fashion_mnist", tmp_path) == {"path": None, "source": "not found"}
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    assert load_data("fashion_mnist", data_dir=tmp_path).classes[9] == "Ankle boot"


@pytest.mark.parametrize("meta", [True, False])
def test_cifar10_from_pickles(tmp_path: Path, meta: bool) -> None:
    parts = write_cifar10(tmp_path / "cifar-10-batches-py", meta)
    data = load_data("cifar10", data_dir=tmp_path, validation=0)
    expected = np.concatenate([x for x, _ in parts[:5]])
    np.testing.assert_array_equal(stored(data.train).flatten(1).numpy(), expected)
    assert data.test is not None
    assert data.test.labels.tolist() == parts[5][1]
    assert data.classes[0] == ("kind 0" if meta else "airplane")
    assert data.augmentation == Augmentation(crop=4, flip=True)


def test_cifar10_from_binaries(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for i, name in enumerate((*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")):
        x, y = cifar_rows(10, 10, i)
        (folder / name).write_bytes(np.concatenate([np.array(y, np.uint8)[:, None], x], axis=1).tobytes())
    data = load_data("cifar10", data_dir=tmp_path, validation=0)
    assert stored(data.train).shape == (50, 3, 32, 32)
    np.testing.assert_array_equal(stored(data.test).flatten(1).numpy(), cifar_rows(10, 10, 5)[0])


def test_cifar100_fine_labels(tmp_path: Path) -> None:
    import pickle

    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        x, y = cifar_rows(100, 100, 0)
        batch = {"data": x, "fine_labels": y, "coarse_labels": [0] * 100}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    data = load_data("cifar100", data_dir=tmp_path, validation=0)
    assert data.train.labels.tolist() == list(range(100))
    assert data.classes[99] == "worm"


def test_wrong_list_of_classes(tmp_path: Path) -> None:
    import pickle

    write_cifar10(tmp_path / "cifar-10-batches-py")
    meta = tmp_path / "cifar-10-batches-py" / "batches.meta"
    meta.write_bytes(pickle.dumps({"label_names": ["cat"]}))
    with pytest.raises(UserError, match=r"batches\.meta is damaged .*10 classes"):
        load_data("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.arange(39, dtype=np.uint8) % 10, "39 labels for 40 images"),
        (np.full(40, 10, dtype=np.uint8), "the label 10"),
    ],
)
def test_labels_that_do_not_match_the_images(tmp_path: Path, labels: np.ndarray, words: str) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / IDX_FILES[1]).write_bytes(idx(labels))
    with pytest.raises(UserError, match=words) as error:
        load_data("mnist", data_dir=tmp_path)
    assert IDX_FILES[1] in str(error.value)


def test_images_of_another_size_and_no_images(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / IDX_FILES[2]).write_bytes(idx(np.zeros((10, 27, 28), dtype=np.uint8)))
    with pytest.raises(UserError, match="27x28 pixels, not 28x28"):
        load_data("mnist", data_dir=tmp_path)
    write_mnist(tmp_path / "mnist", test=0)
    with pytest.raises(UserError, match="is empty"):
        load_data("mnist", data_dir=tmp_path)


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    write_mnist(tmp_path / "mnist", train=200)
    return tmp_path


def sizes(data: DataSet) -> tuple[int, int]:
    return len(data.train), len(data.validation) if data.validation is not None else 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (180, 20)),
        ({"validation": 30}, (170, 30)),
        ({"validation": 0.25}, (150, 50)),
        ({"validation": 0}, (200, 0)),
        ({"validation": 1}, (199, 1)),
        ({"limit": 100}, (100, 10)),
        ({"limit": 100, "validation": 50}, (100, 50)),
        ({"limit": 1000}, (180, 20)),
        ({"classes": 5}, (90, 10)),
    ],
)
def test_sizes_of_the_splits(mnist: Path, options: dict[str, float], expected: tuple[int, int]) -> None:
    assert sizes(load_data("mnist", data_dir=mnist, **options)) == expected  # type: ignore[arg-type]


def test_training_and_validation_are_disjoint_and_stratified(mnist: Path) -> None:
    data = load_data("mnist", data_dir=mnist, limit=100)
    assert data.validation is not None
    train = {image.numpy().tobytes() for image in stored(data.train)}
    assert len(train) == 100
    assert not train & {image.numpy().tobytes() for image in stored(data.validation)}
    assert torch.bincount(data.train.labels).tolist() == [10] * 10
    assert torch.bincount(data.validation.labels).tolist() == [1] * 10


def test_first_classes(mnist: Path) -> None:
    data = load_data("mnist", data_dir=mnist, classes=3)
    assert data.classes == ("0", "1", "2")
    assert data.test is not None
    assert set(data.train.labels.tolist()) == set(data.test.labels.tolist()) == {0, 1, 2}


def test_resized(mnist: Path) -> None:
    data = load_data("mnist", data_dir=mnist, size=14)
    assert data.in_shape == data.preprocessing.size == (1, 14, 14)
    assert stored(data.train).shape[1:] == stored(data.test).shape[1:] == (1, 14, 14)
    assert stored(data.train).dtype == torch.uint8
    before = stored(load_data("mnist", data_dir=mnist).train).float().mean()
    assert abs(float(stored(data.train).float().mean() - before)) < 1


@pytest.mark.parametrize(("name", "size"), [("digits", 400), ("folder", 1200)])
def test_images_that_do_not_fit_into_memory_are_refused_before_they_are_resized(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hff.data.loading.available_memory", lambda: 2**29)

    def fail(*_: object) -> None:
        raise AssertionError("an image was resized or read")

    monkeypatch.setattr("hff.data.loading.resized", fail)
    monkeypatch.setattr("hff.data.readers.folder.forms_of", fail)
    path = tmp_path if name == "folder" else None
    with pytest.raises(UserError, match=rf"images of {size}x{size} pixels need .* choose a smaller size"):
        load_data(name, path=path, size=size)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"validation": 200}, "none of 200 is left"),
        ({"validation": -1}, "share between 0 and 1"),
        ({"validation": 1.5}, "share between 0 and 1"),
        ({"validation": float("nan")}, "share between 0 and 1"),
        ({"validation": "a tenth"}, "share between 0 and 1, not 'a tenth'"),
        ({"validation": None}, "share between 0 and 1, not None"),
        ({"limit": 2.5}, "limit must be a whole number, not 2.5"),
        ({"classes": "3"}, "classes must be a whole number, not '3'"),
        ({"size": True}, "size must be a whole number, not True"),
        ({"path": 3}, "path must be a path, not 3"),
        ({"limit": 0}, "at least 1"),
        ({"classes": 1}, "2 to 10"),
        ({"classes": 11}, "2 to 10"),
        ({"size": 0}, "at least 1 pixel"),
        ({"augment": "mirror"}, "Unknown augmentation"),
        ({"path": Path("x")}, "does not take a path"),
    ],
)
def test_wrong_options(mnist: Path, options: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_data("mnist", data_dir=mnist, **options)  # type: ignore[arg-type]


def test_unknown_and_missing_data_sets(change_source: ChangeSource) -> None:
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        load_data("cifar_10")
    with pytest.raises(UserError, match="mnist cannot be downloaded; put its files into mnist"):
        load_data("mnist")
    change_source("mnist", downloads=(Download("a.gz", (), "0" * 32),))
    with pytest.raises(UserError, match="run `hff data get mnist`"):
        load_data("mnist", download=False)
    with pytest.raises(UserError, match=r"image-net\.org.*imagenet/train/CLASS"):
        load_data("imagenet")
    for name in ("folder", "npz"):
        with pytest.raises(UserError, match="needs a path"):
            load_data(name)


@pytest.mark.parametrize(
    ("name", "words"), [(None, "not None"), (["digits"], "type list"), (Path("digits"), "Path"), (3, "int")]
)
def test_a_name_that_is_not_a_string(name: Any, words: str) -> None:
    with pytest.raises(UserError, match=f"name of a data set must be a string, .*{words}"):
        load_data(name)


def test_every_option_has_a_line_of_help() -> None:
    text = inspect.getdoc(load_data) or ""
    for name in inspect.signature(load_data).parameters:
        assert f"\n    {name}: " in text


@pytest.mark.parametrize("name", datasets)
def test_the_facts_of_a_data_set_are_consistent(name: str) -> None:
    info = datasets[name]
    assert info.description
    assert info.license
    assert len(info.class_names) in (0, info.classes)
    assert len(info.mean) == len(info.std)
    assert not info.mean or (info.in_shape is not None and len(info.mean) == info.in_shape[0])
    assert info.takes_path or info.class_names
