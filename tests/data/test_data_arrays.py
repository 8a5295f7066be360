"""`DataSet.from_arrays`."""

from typing import Any

import numpy as np
import pytest
import torch

from hff.data import Augmentation, DataSet, TensorExamples
from hff.errors import UserError

RNG = np.random.default_rng(0)
TABLE = RNG.normal(5, 3, (50, 4))
LABELS = np.arange(50) % 2


def stored(examples: object) -> torch.Tensor:
    assert isinstance(examples, TensorExamples)
    return examples.x


def test_a_table_is_normalized_by_its_training_rows() -> None:
    data = DataSet.from_arrays(TABLE, LABELS, x_test=TABLE[:10], y_test=LABELS[:10], validation=20)
    assert (data.name, data.in_shape, data.classes) == ("arrays", (4,), ("0", "1"))
    assert data.validation is not None
    assert torch.bincount(data.validation.labels).tolist() == [10, 10]
    train = data.preprocessing(stored(data.train))
    torch.testing.assert_close(train.mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(train.std(0, correction=0), torch.ones(4))
    assert abs(float(data.preprocessing(stored(data.validation)).mean())) > 1e-4
    np.testing.assert_array_equal(stored(data.test).numpy(), TABLE[:10])


@pytest.mark.parametrize("value", [7.0, 0.1, 1e300])
def test_a_constant_column_becomes_zero(value: float) -> None:
    table = TABLE.astype(np.float64)
    table[:, 2] = value
    data = DataSet.from_arrays(table, LABELS)
    assert bool((data.preprocessing(stored(data.train))[:, 2] == 0).all())


def test_the_seed_decides_what_is_carved_for_validation() -> None:
    first, same, other = (DataSet.from_arrays(TABLE, LABELS, seed=seed, validation=0.2) for seed in (0, 0, 1))
    assert torch.equal(stored(first.validation), stored(same.validation))
    assert not torch.equal(stored(first.validation), stored(other.validation))
    assert first.test is None
    assert DataSet.from_arrays(TABLE, LABELS, validation=0).validation is None


def test_a_given_validation_split_is_used() -> None:
    data = DataSet.from_arrays(TABLE, LABELS, x_validation=TABLE[:3], y_validation=LABELS[:3])
    assert len(data.train) == 50
    assert torch.equal(stored(data.validation), torch.from_numpy(TABLE[:3]))


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
def test_images(shape: tuple[int, ...], in_shape: tuple[int, ...], dtype: str) -> None:
    x = RNG.integers(0, 256, shape).astype(dtype)
    data = DataSet.from_arrays(x, LABELS, x_test=x[:5], y_test=LABELS[:5], validation=0, augment="crop")
    assert data.in_shape == in_shape
    expected = x
    if len(shape) == 3:
        expected = x[:, None]
    elif shape[3] in (1, 3):
        expected = np.moveaxis(x, 3, 1)
    np.testing.assert_array_equal(stored(data.train).numpy(), expected)
    assert stored(data.train).dtype == (torch.float32 if dtype == "float32" else torch.uint8)
    assert data.preprocessing.scale == 255
    assert data.augmentation == Augmentation(crop=4)


def test_float_images_between_0_and_1() -> None:
    data = DataSet.from_arrays(RNG.random((50, 6, 7)), LABELS, augment="flip")
    assert data.preprocessing.scale == 1
    assert abs(float(data.preprocessing(stored(data.train)).mean())) < 1e-5


def test_splits_of_wide_integers_are_stored_alike() -> None:
    x = RNG.integers(0, 1000, (50, 6, 7))
    x_test = x % 200
    data = DataSet.from_arrays(x, LABELS, x_test=x_test, y_test=LABELS)
    assert stored(data.test).dtype == torch.float32
    np.testing.assert_array_equal(stored(data.test)[:, 0].numpy(), x_test)


@pytest.mark.parametrize(
    "convert",
    [
        np.ndarray.tolist,
        torch.from_numpy,
        lambda array: torch.from_numpy(array).requires_grad_(array.dtype.kind == "f"),
    ],
)
def test_lists_and_tensors(convert: Any) -> None:
    expected = DataSet.from_arrays(TABLE, LABELS)
    data = DataSet.from_arrays(convert(TABLE), convert(LABELS))
    assert torch.equal(stored(data.train), stored(expected.train))
    assert torch.equal(data.train.labels, expected.train.labels)
    assert data.preprocessing == expected.preprocessing


def test_half_precision_tensors_and_read_only_arrays() -> None:
    half = DataSet.from_arrays(torch.from_numpy(TABLE).bfloat16(), LABELS)
    assert stored(half.train).dtype == torch.float32
    table = TABLE.copy()
    table.flags.writeable = False
    assert stored(DataSet.from_arrays(table, LABELS, validation=0).train).shape == (50, 4)


@pytest.mark.parametrize(
    ("y", "classes", "names", "first"),
    [
        (LABELS + 3, None, ("3", "4"), [0, 1]),
        (LABELS * 2 - 1, None, ("-1", "1"), [0, 1]),
        (LABELS.astype(float), None, ("0", "1"), [0, 1]),
        (LABELS.astype(bool), None, ("0", "1"), [0, 1]),
        (LABELS[:, None], None, ("0", "1"), [0, 1]),
        (list(LABELS), None, ("0", "1"), [0, 1]),
        (np.array(["dog", "cat"])[LABELS], None, ("cat", "dog"), [1, 0]),
        (np.array([b"dog", b"cat"])[LABELS], None, ("cat", "dog"), [1, 0]),
        (np.array(["dog", "cat"], dtype=object)[LABELS], None, ("cat", "dog"), [1, 0]),
        (["dog", "cat"] * 25, ["dog", "cat", "cow"], ("dog", "cat", "cow"), [0, 1]),
        (LABELS, ["cat", "dog", "cow"], ("cat", "dog", "cow"), [0, 1]),
        (LABELS + 3, [4, 3], ("4", "3"), [1, 0]),
        ([(2, "b"), (1, "a")] * 25, None, ("(1, 'a')", "(2, 'b')"), [1, 0]),
        (["a", 1] * 25, [1, "a"], ("1", "a"), [1, 0]),
        (np.arange(50) % 3 + 1, None, ("1", "2", "3"), [0, 1]),
        (LABELS * 5, None, ("0", "5"), [0, 1]),
        (np.array([np.int64(0), np.int64(1)] * 25, dtype=object), ["cat", "dog"], ("cat", "dog"), [0, 1]),
        (np.array([np.True_, np.False_] * 25, dtype=object), None, ("0", "1"), [1, 0]),
        (np.array([b"\xff", b"a"])[LABELS], None, ("\\xff", "a"), [0, 1]),
    ],
)
def test_labels_and_names_of_classes(y: Any, classes: Any, names: tuple[str, ...], first: list[int]) -> None:
    data = DataSet.from_arrays(TABLE, y, classes=classes, validation=0)
    assert data.classes == names
    assert data.train.labels[:2].tolist() == first


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"x": np.where(TABLE > 9, np.nan, TABLE)}, f"x holds {int((TABLE > 9).sum())} values that are NaN"),
    ({"x": np.where(TABLE > 9, np.inf, TABLE)}, "infinite"),
    ({"x": TABLE[:49]}, "x holds 49 rows but y 50 labels"),
    ({"x": TABLE[:, :0]}, r"must be a table \[N, D\] or images .* not float64 \[50, 0\]"),
    ({"x": TABLE[:, 0]}, r"must be a table .* not float64 \[50\]"),
    ({"x": TABLE.astype(complex)}, "must be a table .* not complex128"),
    ({"x": [[1.0], [1.0, 2.0]] * 25}, "rows of x have different lengths"),
    ({"x": np.zeros((50, 6, 7, 2))}, "1 or 3 channels"),
    ({"y": LABELS * 0}, r"one class only \(0\); at least two"),
    ({"y": LABELS * 0.5}, "y holds 0.5; labels must be integers or words"),
    ({"y": np.where(LABELS, np.nan, 0.0)}, "y holds nan"),
    ({"y": np.zeros((50, 2), int)}, r"y must hold one label per row, not int64 \[50, 2\]"),
    ({"y": [[0], [1]] * 25}, "y must hold one label per row"),
    ({"y": ["a", 1] * 25}, "cannot be sorted; give their order as classes"),
    ({"y": LABELS + 1, "classes": ["a", "b"]}, "y holds the label 2, which is not one of the classes"),
    ({"y": ["a", "b"] * 25, "classes": ["a", "a", "b"]}, "name each class once"),
    ({"x_test": TABLE}, "The array y_test is missing"),
    ({"y_validation": LABELS}, "The array x_validation is missing"),
    ({"x_test": TABLE[:, :3], "y_test": LABELS}, r"x_test must be floats \[4\] as in x, not floats \[3\]"),
    ({"x_test": TABLE, "y_test": LABELS + 1}, r"y_test holds the label 2, which is not .* \(0, 1\)"),
    ({"x_validation": TABLE, "y_validation": ["a"] * 50}, "y_validation holds the label 'a'"),
    ({"x_test": TABLE, "y_test": LABELS[:3]}, "x_test holds 50 rows but y_test 3 labels"),
    ({"x": TABLE[:0], "y": LABELS[:0]}, "y is empty"),
    ({"y": np.array(["a", None] * 25, dtype=object)}, "y holds 25 missing labels, the first in row 1"),
    ({"y": np.array([float("nan"), "b"] * 25, dtype=object)}, "25 missing labels, the first in row 0"),
    ({"x": np.array([["a", 1.0]] * 50, dtype=object)}, r"must be a table .* not object"),
    ({"x": np.full((50, 6, 7), 1e300)}, "2100 values too large for float32; rescale them"),
    ({"validation": 1.0}, "write a share below 1, such as 0.1, or the whole number 1"),
    ({"validation": 50}, "none of 50 is left to train on"),
    ({"augment": "flip"}, "cannot be augmented by 'flip'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_arrays_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DataSet.from_arrays(**{"x": TABLE, "y": LABELS, **arguments})


def test_a_table_of_objects_holds_numbers() -> None:
    mixed = TABLE.astype(object)
    mixed[:, 1] = TABLE[:, 1] > 5
    data = DataSet.from_arrays(mixed, LABELS)
    expected = DataSet.from_arrays(mixed.astype(float), LABELS)
    assert torch.equal(stored(data.train), stored(expected.train))
    assert data.preprocessing == expected.preprocessing


@pytest.mark.parametrize("scale", [1e300, 1.7e307, 1e-200, 1e-300])
def test_very_large_and_very_small_columns_are_normalized(scale: float) -> None:
    table = TABLE.copy()
    table[:, 1] = table[:, 1] * scale
    data = DataSet.from_arrays(table, LABELS, validation=0)
    expected = DataSet.from_arrays(TABLE, LABELS, validation=0)
    assert np.isfinite(data.preprocessing.std).all()
    assert data.preprocessing.mean[0] == expected.preprocessing.mean[0]
    x, wanted = (one.preprocessing(stored(one.train)) for one in (data, expected))
    torch.testing.assert_close(x, wanted)


def test_a_column_that_hardly_varies_counts_as_constant() -> None:
    table = TABLE.copy()
    table[:, 1] = 5e-324 * LABELS
    data = DataSet.from_arrays(table, LABELS)
    assert data.preprocessing.std[1] == 1
    assert bool((data.preprocessing(stored(data.train))[:, 1] == 0).all())


@pytest.mark.parametrize("split", ["test", "validation"])
def test_a_value_that_overflows_when_it_is_normalized_is_refused_before_training(split: str) -> None:
    x, other = TABLE.astype(np.float64), TABLE[:10].astype(np.float64)
    other[3, 1] = 1e300
    arrays: dict[str, Any] = {f"x_{split}": other, f"y_{split}": LABELS[:10]}
    with pytest.raises(UserError, match=r"Column 1 of the table holds 1e\+300, which is far too large"):
        DataSet.from_arrays(x, LABELS, **arrays)
