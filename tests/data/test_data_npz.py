"""Arrays in an .npz file. The checks of the arrays themselves are in `test_data_arrays`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hff.data import TensorExamples, load_data
from hff.errors import UserError

TABLE = np.random.default_rng(0).normal(5, 3, (50, 4))
LABELS = np.arange(50) % 2
WORDS = np.array(["dog", "cat"])[LABELS]


def saved(tmp_path: Path, **arrays: Any) -> Path:
    path = tmp_path / "own.npz"
    np.savez(path, **arrays)
    return path


def test_a_fifth_is_carved_for_testing_with_every_seed(tmp_path: Path) -> None:
    path = saved(tmp_path, x=TABLE, y=LABELS)
    first, second = (load_data("npz", path=path, seed=seed).test for seed in (0, 1))
    assert isinstance(first, TensorExamples)
    assert isinstance(second, TensorExamples)
    assert torch.bincount(first.labels).tolist() == [5, 5]
    assert torch.equal(first.x, second.x)


def test_all_arrays(tmp_path: Path) -> None:
    splits = {"x_test": TABLE[:2], "y_test": WORDS[:2], "x_validation": TABLE[:3], "y_validation": WORDS[:3]}
    data = load_data("npz", path=saved(tmp_path, x=TABLE, y=WORDS, **splits, classes=["dog", "cow", "cat"]))
    assert data.classes == ("dog", "cow", "cat")
    assert data.validation is not None
    assert data.test is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (50, 3, 2)
    assert data.test.labels.tolist() == [0, 2]
    assert len(load_data("npz", path=tmp_path / "own.npz", classes=2).validation or ()) == 2


def test_class_names_in_bytes(tmp_path: Path) -> None:
    path = saved(tmp_path, x=TABLE, y=LABELS, classes=np.array([b"cat", b"dog"]))
    assert load_data("npz", path=path).classes == ("cat", "dog")


def test_images_are_resized(tmp_path: Path) -> None:
    images = np.full((50, 6, 7, 3), 9, dtype=np.uint8)
    data = load_data(
        "npz", path=saved(tmp_path, x=images, y=LABELS, x_validation=images, y_validation=LABELS), size=4
    )
    assert data.in_shape == (3, 4, 4)
    for split in (data.train, data.validation, data.test):
        assert isinstance(split, TensorExamples)
        assert split.x.shape[1:] == (3, 4, 4)


@pytest.mark.parametrize("content", [b"", b"words", b"PK\x03\x04 cut off"])
def test_files_in_another_format_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "own.npz"
    with pytest.raises(UserError, match="There is no file"):
        load_data("npz", path=path)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"own\.npz cannot be read"):
        load_data("npz", path=path)


def test_wrong_arrays_are_refused_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with path.open("wb") as file:
        np.save(file, TABLE)
    with pytest.raises(UserError, match=r"own\.npz cannot be read"):
        load_data("npz", path=path)
    with pytest.raises(UserError, match="file of plain arrays"):
        load_data("npz", path=saved(tmp_path, x=np.array([{}] * 50), y=LABELS))
    with pytest.raises(UserError, match="does not hold an array 'y'"):
        load_data("npz", path=saved(tmp_path, x=TABLE))
    with pytest.raises(UserError, match=r"y in .*own\.npz holds one class only"):
        load_data("npz", path=saved(tmp_path, x=TABLE, y=LABELS * 0))


def test_a_table_cannot_be_resized_or_augmented(tmp_path: Path) -> None:
    path = saved(tmp_path, x=TABLE, y=LABELS)
    with pytest.raises(UserError, match="does not have a size"):
        load_data("npz", path=path, size=8)
    with pytest.raises(UserError, match="cannot be augmented by 'flip'"):
        load_data("npz", path=path, augment="flip")
