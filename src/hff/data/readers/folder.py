"""Folders of images, one for each class: the user's own, and ImageNet."""

import os
from pathlib import Path

import torch
from torch import Tensor

from hff.data.dataset import RawData
from hff.data.examples import Examples, TensorExamples
from hff.data.readers.image_files import ImageFileExamples
from hff.data.readers.images import SUFFIXES, common_form
from hff.data.splits import carve_test
from hff.errors import UserError

IN_MEMORY = 10**9
"""Images of fewer bytes than this are decoded once; others are decoded whenever a batch asks for them."""

DEFAULT_SIZE = 64
"""Height and width of images of several sizes, or of large ones, unless the user says another."""

KEPT_SIZE = 96
"""Up to this height and width, images that are all of one size keep it."""

DECODED_AT_ONCE = 64


def read_folder(path: Path, size: int | None) -> RawData:
    """The user's images: path/CLASS/*, or path/train/CLASS/* with path/test/CLASS/* or path/val/CLASS/*.

    Without a test folder a fifth of the images is for testing, the same fifth whatever the seed.
    """
    path = path.expanduser()
    if not path.is_dir():
        raise UserError(f"There is no folder {path}; give one that holds a folder of images for each class.")
    train_root, test_root = _roots(path)
    classes = _classes(train_root)
    files, labels = _listed(train_root, classes)
    test_files, test_labels = _listed(test_root, classes) if test_root else ([], labels[:0])
    channels, common = common_form(files + test_files)
    if size is None and common is not None and max(common) <= KEPT_SIZE:
        shape = (channels, *common)
    else:
        shape = (channels, size or DEFAULT_SIZE, size or DEFAULT_SIZE)
    train: Examples = ImageFileExamples(files, labels, shape)
    test: Examples = ImageFileExamples(test_files, test_labels, shape)
    if (len(train) + len(test)) * channels * shape[1] * shape[2] <= IN_MEMORY:
        train, test = _decoded(train), _decoded(test)
    if test_root is None:
        kept, taken = carve_test(labels, "folder")
        train, test = train.subset(kept), train.subset(taken)
    return RawData(train, test, classes, shape)


def _roots(path: Path) -> tuple[Path, Path | None]:
    """The folders that hold the classes for training and for testing."""
    if (path / "train").is_dir() and _folders(path / "train"):
        return path / "train", next((root for root in (path / "test", path / "val") if root.is_dir()), None)
    return path, None


def read_imagenet(path: Path, size: int) -> RawData:
    """ImageNet from path/train/CLASS/* and path/val/CLASS/*; its validation images are what we test on.

    As in AlexNet's recipe, the shorter side is scaled to 256 (for windows of 224) and the centre is kept;
    training takes a random window of it, evaluation the middle one.
    """
    path = path.expanduser()
    if not ((path / "train").is_dir() and (path / "val").is_dir()):
        raise UserError(f"{path} does not hold ImageNet as train/CLASS/*.JPEG and val/CLASS/*.JPEG.")
    classes = _classes(path / "train")
    shape, margin = (3, size, size), 256 / 224
    train = ImageFileExamples(*_listed(path / "train", classes), shape, margin)
    test = ImageFileExamples(*_listed(path / "val", classes), shape, margin)
    return RawData(train, test, classes, shape, margin=margin)


def _classes(root: Path) -> tuple[str, ...]:
    """The names of the class folders in alphabetical order."""
    classes = tuple(sorted(folder.name for folder in _folders(root)))
    if len(classes) < 2:
        raise UserError(f"{root} must hold one folder of images for each of two or more classes.")
    return classes


def _listed(root: Path, classes: tuple[str, ...]) -> tuple[list[str], Tensor]:
    """Every image file of the class folders in alphabetical order, and its class [N]."""
    number = {name: i for i, name in enumerate(classes)}
    files: list[str] = []
    labels: list[int] = []
    for folder in sorted(_folders(root)):
        if folder.name not in number:
            raise UserError(f"The class {folder.name!r} in {root} has no training images; add some.")
        images = sorted(file.path for file in os.scandir(folder) if _is_image(file.name))
        if not images:
            raise UserError(f"The folder {folder} holds no images; remove it or add some.")
        files += images
        labels += [number[folder.name]] * len(images)
    if not files:
        raise UserError(f"{root} holds no images in folders of classes; put them into one folder per class.")
    return files, torch.tensor(labels, dtype=torch.int64)


def _folders(root: Path) -> list[Path]:
    return [folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith(".")]


def _is_image(name: str) -> bool:
    """Judged by its name: notes and lists beside images are passed over, and so are hidden files."""
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


def _decoded(examples: Examples) -> TensorExamples:
    parts = list(examples.in_order(DECODED_AT_ONCE))
    return TensorExamples(torch.cat(parts) if parts else torch.empty(0), examples.labels)
