"""Image folders."""

import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_files import write_images

from hff.data import Augmentation, Batches, ImageFileExamples, TensorExamples, load_data
from hff.errors import UserError


def test_one_folder_per_class(tmp_path: Path) -> None:
    write_images(tmp_path, count=10)
    data = load_data("folder", path=tmp_path)
    assert data.classes == ("a", "b")
    assert data.in_shape == (3, 8, 6)
    assert data.test is not None
    assert torch.bincount(data.test.labels).tolist() == [2, 2]
    assert data.augmentation == Augmentation.none()
    assert isinstance(data.train, TensorExamples)
    bright = data.train.x.float().mean((1, 2, 3)) > 75
    assert torch.equal(bright.long(), data.train.labels)
    again = load_data("folder", path=tmp_path, seed=5)
    assert isinstance(again.test, TensorExamples)
    assert isinstance(data.test, TensorExamples)
    assert torch.equal(again.test.x, data.test.x)


def test_folders_for_training_and_testing(tmp_path: Path) -> None:
    write_images(tmp_path / "train", count=5)
    write_images(tmp_path / "test", count=2)
    data = load_data("folder", path=tmp_path, validation=0)
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (10, 4)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write_images(tmp_path, classes="ab")
    (tmp_path / "a").rename(tmp_path / "train")
    assert load_data("folder", path=tmp_path).classes == ("b", "train")


def test_statistics_are_computed_from_the_training_split(tmp_path: Path) -> None:
    write_images(tmp_path, count=10)
    data = load_data("folder", path=tmp_path)
    assert isinstance(data.train, TensorExamples)
    x = data.train.x.double() / 255
    np.testing.assert_allclose(data.preprocessing.mean, x.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(data.preprocessing.std, x.std((0, 2, 3), correction=0), rtol=1e-12)


def test_gray_images_have_one_channel(tmp_path: Path) -> None:
    write_images(tmp_path, mode="L")
    assert load_data("folder", path=tmp_path).in_shape == (1, 8, 6)
    Image.new("RGB", (6, 8)).save(tmp_path / "a" / "color.png")
    assert load_data("folder", path=tmp_path).in_shape == (3, 8, 6)


def test_default_and_given_sizes(tmp_path: Path) -> None:
    write_images(tmp_path)
    assert load_data("folder", path=tmp_path, size=5).in_shape == (3, 5, 5)
    write_images(tmp_path, classes="c", size=(9, 9))
    assert load_data("folder", path=tmp_path).in_shape == (3, 64, 64)
    write_images(tmp_path / "large", size=(257, 257), count=2)
    assert load_data("folder", path=tmp_path / "large").in_shape == (3, 64, 64)


def test_other_files_are_ignored(tmp_path: Path) -> None:
    write_images(tmp_path, count=5)
    (tmp_path / "a" / "notes.txt").write_text("some words")
    (tmp_path / "a" / ".hidden.png").write_text("some words")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "labels.csv").write_text("a,b")
    data = load_data("folder", path=tmp_path, validation=0)
    assert data.test is not None
    assert len(data.train) + len(data.test) == 10


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no folder"):
        load_data("folder", path=tmp_path / "missing")
    with pytest.raises(UserError, match="at least two classes"):
        load_data("folder", path=tmp_path)
    write_images(tmp_path / "train")
    write_images(tmp_path / "test", classes="abc")
    with pytest.raises(UserError, match=r"class 'c' in .*test has no training images"):
        load_data("folder", path=tmp_path)
    (tmp_path / "train" / "c").mkdir()
    with pytest.raises(UserError, match="c does not hold any images"):
        load_data("folder", path=tmp_path)


@pytest.mark.parametrize("whole_header", [True, False])
def test_a_damaged_image_is_named(tmp_path: Path, whole_header: bool) -> None:
    write_images(tmp_path, size=(60, 60))
    broken = tmp_path / "b" / "3.png"
    broken.write_bytes(broken.read_bytes()[: 2000 if whole_header else 4])
    with pytest.raises(UserError, match=r"3\.png cannot be read as an image"):
        load_data("folder", path=tmp_path)


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    for split, count in (("train", 12), ("val", 3)):
        write_images(tmp_path / split, count=count, classes="pq", size=(40, 50))
    return tmp_path


def test_imagenet(imagenet: Path) -> None:
    data = load_data("imagenet", path=imagenet, size=28, validation=4)
    assert data.in_shape == (3, 28, 28)
    assert isinstance(data.train, ImageFileExamples)
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (20, 6)
    assert data.train.fetch(torch.tensor([3, 1])).shape == (2, 3, 32, 32)
    batches = Batches(data.train, data.preprocessing, 6, (0, "joint"), data.augmentation)
    whole = list(batches.epoch(1))
    assert [batch.x.shape[0] for batch in whole] == [6, 6, 6, 2]
    assert whole[0].x.shape[1:] == (3, 28, 28)
    for a, b in zip(whole[2:], batches.epoch(1, start=2), strict=True):
        assert torch.equal(a.x, b.x)
    bright = whole[0].x.mean((1, 2, 3)) > whole[0].x.mean()
    assert torch.equal(bright.long(), whole[0].y)


def test_imagenet_is_found_in_the_folder_of_hff_data(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = imagenet.parent / f"{imagenet.name}-home"
    home.mkdir()
    imagenet.rename(home / "imagenet")
    monkeypatch.setenv("HFF_DATA", str(home))
    assert load_data("imagenet", size=8).classes == ("p", "q")


def test_prediction_and_evaluation_read_the_same_pixels(imagenet: Path) -> None:
    data = load_data("imagenet", path=imagenet, size=28)
    assert isinstance(data.test, ImageFileExamples)
    seen = next(Batches.in_order(data.test, data.preprocessing, 6).epoch(0)).x
    for i, file in enumerate(data.test.files):
        torch.testing.assert_close(data.preprocessing.read_image(file), seen[i])


def test_imagenet_in_the_wrong_layout(tmp_path: Path) -> None:
    write_images(tmp_path)
    with pytest.raises(UserError, match=r"does not hold ImageNet as train/CLASS"):
        load_data("imagenet", path=tmp_path)


def test_files_are_decoded_in_order_and_threads_end(imagenet: Path) -> None:
    data = load_data("imagenet", path=imagenet, size=28, validation=0)
    index = [torch.tensor([i, i + 1]) for i in range(0, 24, 2)]
    before = threading.active_count()
    stream = data.train.stream(index)
    for one in index[:3]:
        assert torch.equal(next(stream), data.train.fetch(one))
    del stream
    assert threading.active_count() == before


def test_a_damaged_file_is_named_when_its_batch_is_read(imagenet: Path) -> None:
    data = load_data("imagenet", path=imagenet, size=28, validation=0)
    (imagenet / "train" / "q" / "4.png").write_text("broken")
    with pytest.raises(UserError, match=r"4\.png cannot be read as an image"):
        list(Batches.in_order(data.train, data.preprocessing, 6).epoch(0))


def test_image_files_can_be_pickled(imagenet: Path) -> None:
    data = load_data("imagenet", path=imagenet, size=28)
    copy = pickle.loads(pickle.dumps(data.train))
    assert torch.equal(copy.fetch(torch.tensor([0])), data.train.fetch(torch.tensor([0])))


def test_large_folders_are_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, count=10)
    in_memory = load_data("folder", path=tmp_path)
    monkeypatch.setattr("hff.data.readers.folder.IN_MEMORY", 100)
    on_disk = load_data("folder", path=tmp_path)
    assert isinstance(on_disk.train, ImageFileExamples)
    every = torch.arange(len(in_memory.train))
    assert torch.equal(on_disk.train.fetch(every), in_memory.train.fetch(every))
    assert on_disk.preprocessing == in_memory.preprocessing
