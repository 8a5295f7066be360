"""`DataSet.describe` and `DataSet.warnings`."""

from pathlib import Path

import numpy as np
import pytest
from tiny_files import write_images, write_mnist

from hff.data import DataSet, DataWarning, load_data

RNG = np.random.default_rng(0)


def table(*counts: int, **options: object) -> DataSet:
    """A table with the given number of examples of each class."""
    labels = np.repeat([f"class {i}" for i in range(len(counts))], counts)
    return DataSet.from_arrays(RNG.normal(size=(len(labels), 4)), labels, **options)  # type: ignore[arg-type]


def test_a_described_table() -> None:
    assert table(40, 60, validation=10).describe().splitlines() == [
        "arrays: 100 rows in 2 classes",
        "  training   90 examples, given",
        "  validation 10 examples, carved from the training split",
        "  test       none",
        "  input      4 columns",
        "  classes    class 0 (36), class 1 (54)",
    ]


def test_described_folders(tmp_path: Path) -> None:
    write_images(tmp_path, count=50, size=(8, 6))
    assert load_data("folder", path=tmp_path).describe().splitlines() == [
        "folder: 100 images in 2 classes",
        "  training   72 examples, given",
        "  validation 8 examples, carved from the training split",
        "  test       20 examples, carved from the training split",
        "  input      8x6 pixels, color",
        "  classes    a (36), b (36)",
    ]
    write_images(tmp_path / "split" / "train", count=50, size=(100, 200), mode="L")
    for name in ("valid", "test"):
        write_images(tmp_path / "split" / name, count=5, size=(30, 20), mode="L")
    assert load_data("folder", path=tmp_path / "split").describe().splitlines() == [
        "folder: 120 images in 2 classes",
        "  training   100 examples, given",
        "  validation 10 examples, given",
        "  test       10 examples, given",
        "  input      64x64 pixels, gray; the middle of every image is scaled to 64x64",
        "             pixels (files: 30x20 to 100x200)",
        "  classes    a (50), b (50)",
    ]


def test_described_digits_and_resized_images(tmp_path: Path) -> None:
    text = load_data("digits").describe()
    assert "test       360 examples, a fixed fifth of the data" in text
    assert "Warning" not in text
    write_mnist(tmp_path / "mnist", train=400)
    text = load_data("mnist", data_dir=tmp_path, size=14).describe()
    assert "14x14 pixels, gray; scaled from 28x28 to 14x14 pixels" in text


def test_many_and_long_classes() -> None:
    text = table(*[20] * 11, 40, validation=0).describe()
    assert "  classes    20 to 40 training examples each" in text
    labels = ["a very long name " * 9, "b" * 200] * 20
    text = DataSet.from_arrays(RNG.normal(size=(40, 4)), labels).describe()
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (table(20, 20, validation=0), ["There is no validation split"]),
        (
            table(20, 70, validation=1),
            ["imbalanced: 'class 1' has 69 training examples and 'class 0'"],
        ),
        (table(9, 20, 20, validation=1), ["The class 'class 0' has 9 training examples; with fewer than 10"]),
        (
            table(9, 9, 9, 9, 20, validation=1),
            ["4 classes have fewer than 10 training examples ('class "],
        ),
        (table(20, 20, validation=1), []),
    ],
    ids=["no validation", "imbalance", "one small class", "several small classes", "none"],
)
def test_warnings(data: DataSet, words: list[str]) -> None:
    assert len(data.warnings) == len(words)
    assert all(part in warning for part, warning in zip(words, data.warnings, strict=True))
    assert data.describe().count("Warning: ") == len(words)


def test_files_that_were_skipped_are_in_the_warnings(tmp_path: Path) -> None:
    write_images(tmp_path, count=30)
    (tmp_path / "a" / "0.png").write_text("not an image")
    with pytest.warns(DataWarning):
        data = load_data("folder", path=tmp_path, bad_images="skip")
    assert len(data.warnings) == 1
    assert "0.png cannot be read as an image (unknown format); skipped." in data.warnings[0]
