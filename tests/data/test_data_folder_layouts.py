"""Image folders as people have them: splits, nested folders, annotations, images without labels."""

import warnings
from pathlib import Path

import pytest
import torch
from tiny_files import write_images

from hff.data import DataSet, DataWarning, load_data
from hff.errors import UserError


def sizes(data: DataSet) -> tuple[int, int, int]:
    """The sizes of training, validation and test split."""
    return tuple(len(split) if split is not None else 0 for split in (data.train, data.validation, data.test))  # type: ignore[return-value]


def quiet(path: Path) -> DataSet:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_data("folder", path=path)


@pytest.mark.parametrize("name", ["val", "valid", "validation", "Valid"])
def test_a_validation_folder_is_the_validation_split(tmp_path: Path, name: str) -> None:
    write_images(tmp_path / "train", count=10)
    write_images(tmp_path / name, count=3)
    assert sizes(quiet(tmp_path)) == (16, 6, 4)
    write_images(tmp_path / "test", count=2)
    assert sizes(quiet(tmp_path)) == (20, 6, 4)


@pytest.mark.parametrize(
    ("train", "test"), [("Train", "Test"), ("Training", "Testing"), ("training", "test")]
)
def test_other_names_of_the_splits(tmp_path: Path, train: str, test: str) -> None:
    write_images(tmp_path / train, count=10)
    write_images(tmp_path / test, count=2)
    data = quiet(tmp_path)
    assert data.classes == ("a", "b")
    assert sizes(data) == (18, 2, 4)


def test_two_folders_of_one_split_are_refused(tmp_path: Path) -> None:
    for name in ("train", "val", "valid"):
        write_images(tmp_path / name)
    with pytest.raises(UserError, match="holds val and valid, which mean the same split"):
        load_data("folder", path=tmp_path)


def test_splits_are_not_classes(tmp_path: Path) -> None:
    write_images(tmp_path, classes=("train", "test"))
    with pytest.raises(UserError, match="holds test and train but no training folder with class folders"):
        load_data("folder", path=tmp_path)
    write_images(tmp_path / "other", classes=("a", "b"))
    write_images(tmp_path / "other" / "test")
    with pytest.raises(UserError, match="holds test but no training folder"):
        load_data("folder", path=tmp_path / "other")


def test_images_in_folders_inside_the_class_folders(tmp_path: Path) -> None:
    for name in "ab":
        write_images(tmp_path / name, count=5, classes=("images", "more"))
        (tmp_path / name / ".hidden").mkdir()
        (tmp_path / name / ".hidden" / "0.png").write_text("not an image")
    (tmp_path / "__MACOSX").mkdir()
    data = quiet(tmp_path)
    assert data.classes == ("a", "b")
    assert sizes(data) == (14, 2, 4)


@pytest.fixture
def tiny_imagenet(tmp_path: Path) -> Path:
    for name in ("n01", "n02"):
        write_images(tmp_path / "train" / name, count=10, classes=("images",))
        (tmp_path / "train" / name / f"{name}_boxes.txt").write_text("a box")
    write_images(tmp_path / "val", count=4, classes=("images",))
    lines = [f"{i}.png\t{'n02' if i < 3 else 'n01'}\t0\t0\t9\t9\n" for i in range(4)]
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(lines))
    write_images(tmp_path / "test", count=3, classes=("images",))
    (tmp_path / "wnids.txt").write_text("n01\nn02\n")
    return tmp_path


def test_tiny_imagenet(tiny_imagenet: Path) -> None:
    with pytest.warns(DataWarning, match="test are not in class folders, .* not used for testing"):
        data = load_data("folder", path=tiny_imagenet)
    assert data.classes == ("n01", "n02")
    assert sizes(data) == (16, 4, 4)
    assert data.validation is not None
    assert data.validation.labels.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("9.png\tn01", "Line 5 .* names '9.png', which is not in"),
        ("../0.png\tn01", r"Line 5 .* names '\.\./0.png', which is not in"),
        ("3.png\tn03", "Line 5 .* names the class 'n03', which is not a training class"),
        ("3.png", "Line 5 .* names the class ''"),
        ("\udcff\x00", "Line 5 .* which is not in"),
    ],
)
def test_wrong_annotations(tiny_imagenet: Path, line: str, words: str) -> None:
    with (tiny_imagenet / "val" / "val_annotations.txt").open("a", errors="surrogateescape") as file:
        file.write(line)
    with pytest.raises(UserError, match=words):
        load_data("folder", path=tiny_imagenet)


def test_images_without_annotations(tiny_imagenet: Path) -> None:
    annotations = tiny_imagenet / "val" / "val_annotations.txt"
    annotations.write_text(annotations.read_text().split("\n")[0])
    with pytest.raises(UserError, match="does not name the class of 3 images"):
        load_data("folder", path=tiny_imagenet)
    annotations.unlink()
    with pytest.raises(
        UserError, match=r"nor listed in a file val_annotations\.txt, so their classes are unkn"
    ):
        load_data("folder", path=tiny_imagenet)


def test_a_test_folder_of_images_without_classes_is_ignored_with_a_warning(tmp_path: Path) -> None:
    write_images(tmp_path / "train", count=10)
    write_images(tmp_path, count=3, classes=("test",))
    with pytest.warns(DataWarning, match="not used for testing"):
        data = load_data("folder", path=tmp_path)
    assert sizes(data) == (14, 2, 4)
    assert torch.bincount(data.train.labels).tolist() == [7, 7]


def test_folders_of_images_beside_the_splits_are_named(tmp_path: Path) -> None:
    write_images(tmp_path / "train", count=10)
    write_images(tmp_path / "val", count=3)
    (tmp_path / "notes").mkdir()
    quiet(tmp_path)
    write_images(tmp_path / "dev", count=3)
    with pytest.warns(DataWarning, match=r"ignored \(dev\); only train, val are used"):
        load_data("folder", path=tmp_path)


def test_unsupported_endings_are_named(tmp_path: Path) -> None:
    write_images(tmp_path, count=10)
    for name in ("LICENSE", "a/boxes.txt", "b/Thumbs.db"):
        (tmp_path / name).write_text("")
    quiet(tmp_path)
    for name in ("0.AVIF", "1.AVIF", "2.avif", "3.jpe", "4"):
        (tmp_path / "a" / name).write_text("")
    message = r"were ignored \(1 without an ending, 3 \.avif, 1 \.jpe\); convert images to PNG or JPEG"
    with pytest.warns(DataWarning, match=message):
        load_data("folder", path=tmp_path)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "x.avif").write_text("")
    with pytest.raises(
        UserError, match=r"c does not hold any images \(only \.avif files, which are not supp"
    ):
        load_data("folder", path=tmp_path)
