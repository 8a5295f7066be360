"""The user's own arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hff.data import TensorExamples, load_data
from hff.errors import UserError

RNG = np.random.default_rng(0)
TABLE = RNG.normal(5, 3, (50, 4))
LABELS = np.arange(50) % 2


def saved(tmp_path: Path, **arrays: Any) -> Path:
    path = tmp_path / "own.npz"
    np.savez(path, **arrays)
    return path


def stored(examples: object) -> torch.Tensor:
    assert isinstance(examples, TensorExamples)
    return examples.x


def test_a_table_is_standardised_by_its_training_rows(tmp_path: Path) -> None:
    data = load_data("npz", path=saved(tmp_path, x=TABLE, y=LABELS))
    assert data.in_shape == (4,)
    assert data.classes == ("0", "1")
    assert data.test is not None
    assert len(data.test) == 10
    train = data.preprocessing(stored(data.train))
    torch.testing.assert_close(train.mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(train.std(0, correction=0), torch.ones(4))
    assert abs(float(data.preprocessing(stored(data.test)).mean())) > 1e-4


def test_a_constant_column_becomes_zero(tmp_path: Path) -> None:
    table = TABLE.copy()
    table[:, 2] = 7
    data = load_data("npz", path=saved(tmp_path, x=table, y=LABELS))
    assert bool((data.preprocessing(stored(data.train))[:, 2] == 0).all())


@pytest.mark.parametrize(
    ("shape", "in_shape"),
    [
        ((50, 6, 7), (1, 6, 7)),
        ((50, 6, 7, 3), (3, 6, 7)),
        ((50, 6, 7, 1), (1, 6, 7)),
        ((50, 3, 6, 7), (3, 6, 7)),
        ((50, 1, 6, 7), (1, 6, 7)),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_images(tmp_path: Path, shape: tuple[int, ...], in_shape: tuple[int, ...], dtype: str) -> None:
    x = RNG.integers(0, 256, shape).astype(dtype)
    data = load_data("npz", path=saved(tmp_path, x=x, y=LABELS, x_test=x, y_test=LABELS), validation=0)
    assert data.in_shape == in_shape
    expected = x
    if len(shape) == 3:
        expected = x[:, None]
    elif shape[3] in (1, 3):
        expected = np.moveaxis(x, 3, 1)
    np.testing.assert_array_equal(stored(data.train).numpy(), expected)
    assert stored(data.train).dtype == (torch.float32 if dtype == "float32" else torch.uint8)
    assert data.preprocessing.scale == 255


def test_float_images_between_0_and_1(tmp_path: Path) -> None:
    x = RNG.random((50, 6, 7))
    data = load_data("npz", path=saved(tmp_path, x=x, y=LABELS), augment="flip")
    assert data.preprocessing.scale == 1
    assert abs(float(data.preprocessing(stored(data.train)).mean())) < 1e-5


def test_words_as_labels(tmp_path: Path) -> None:
    words = np.array(["dog", "cat"])[LABELS]
    data = load_data("npz", path=saved(tmp_path, x=TABLE, y=words, x_test=TABLE[:2], y_test=words[:2]))
    assert data.classes == ("cat", "dog")
    assert data.test is not None
    assert data.test.labels.tolist() == [1, 0]
    encoded = load_data("npz", path=saved(tmp_path, x=TABLE, y=words.astype("S")))
    assert encoded.classes == ("cat", "dog")


def test_names_beside_numbers(tmp_path: Path) -> None:
    data = load_data("npz", path=saved(tmp_path, x=TABLE, y=LABELS, classes=["cat", "dog", "cow"]))
    assert data.classes == ("cat", "dog", "cow")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"x": np.where(TABLE > 9, np.nan, TABLE)}, f"holds {int((TABLE > 9).sum())} values that are NaN"),
    ({"x": np.where(TABLE > 9, np.inf, TABLE)}, "infinite"),
    ({"x": TABLE[:49]}, "49 rows but y 50"),
    ({"x": TABLE[:, :0]}, "a table or images"),
    ({"x": TABLE[:, 0]}, "a table or images"),
    ({"x": TABLE.astype(complex)}, "a table or images"),
    ({"x": np.zeros((50, 6, 7, 2))}, "1 or 3 channels"),
    ({"y": LABELS - 1}, "the label -1"),
    ({"y": LABELS + 1}, "has the label 0"),
    ({"y": LABELS * 0}, "1 class; at least two"),
    ({"y": LABELS * 0.5}, "one integer or word a row, not float64"),
    ({"y": np.zeros((50, 2), int)}, r"one integer or word a row, not int64 \[50, 2\]"),
    ({"y": LABELS + 1, "classes": ["a", "b"]}, "the label 2; the classes are 0 to 1"),
    ({"x_test": TABLE}, "both of x_test and y_test"),
    ({"x_test": TABLE[:, :3], "y_test": LABELS}, r"floats \[4\] in each row and x_test floats \[3\]"),
    ({"x_test": TABLE, "y_test": LABELS + 1}, "y_test .* the label 2"),
    ({"x_test": TABLE, "y_test": LABELS[:3]}, "50 rows but y_test 3"),
    ({"x": TABLE[:0], "y": LABELS[:0]}, "is empty"),
]


@pytest.mark.parametrize(("arrays", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_is_wrong_with_arrays(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    path = saved(tmp_path, **{"x": TABLE, "y": LABELS, **arrays})
    with pytest.raises(UserError, match=words) as error:
        load_data("npz", path=path)
    assert "own.npz" in str(error.value)


def test_unknown_word_among_the_tests(tmp_path: Path) -> None:
    words = np.array(["dog", "cat"])[LABELS]
    path = saved(tmp_path, x=TABLE, y=words, x_test=TABLE[:1], y_test=np.array(["cow"]))
    with pytest.raises(UserError, match="'cow'"):
        load_data("npz", path=path)


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with pytest.raises(UserError, match="There is no file"):
        load_data("npz", path=path)
    for content in (b"", b"words", b"PK\x03\x04 cut off"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"own\.npz cannot be read"):
            load_data("npz", path=path)
    with path.open("wb") as file:
        np.save(file, TABLE)
    with pytest.raises(UserError, match=r"own\.npz cannot be read"):
        load_data("npz", path=path)
    with pytest.raises(UserError, match="file of plain arrays"):
        load_data("npz", path=saved(tmp_path, x=np.array([{}] * 50), y=LABELS))
    with pytest.raises(UserError, match="holds no array 'y'"):
        load_data("npz", path=saved(tmp_path, x=TABLE))


def test_a_table_has_neither_size_nor_augmentation(tmp_path: Path) -> None:
    path = saved(tmp_path, x=TABLE, y=LABELS)
    with pytest.raises(UserError, match="no size"):
        load_data("npz", path=path, size=8)
    with pytest.raises(UserError, match="cannot be augmented by 'flip'"):
        load_data("npz", path=path, augment="flip")
