"""Image folders with one folder per class: the user's own, and ImageNet."""

import os
from pathlib import Path

import torch
from torch import Tensor

from hff.data.examples import Examples, TensorExamples
from hff.data.info import ReadRequest
from hff.data.raw import RawData
from hff.data.readers.image_files import ImageFileExamples
from hff.data.readers.images import SUFFIXES, common_form
from hff.data.splits import carve_test
from hff.errors import UserError

IN_MEMORY = 10**9
"""Images that need fewer bytes than this are decoded once; others are decoded for every batch."""

DEFAULT_SIZE = 64
"""The default height and width of images that are large or have different sizes."""

KEPT_SIZE = 96
"""Images that all have the same size keep it up to this height and width."""

DECODED_AT_ONCE = 64


def read_folder(request: ReadRequest) -> RawData:
    """The user's images: path/CLASS/*, or path/train/CLASS/* with path/test/CLASS/* or path/val/CLASS/*.

    Without a test folder, a fifth of the images is used for testing, the same fifth for every seed.
    """
    path, size = request.location, request.size
    if not path.is_dir():
        raise UserError(
            f"There is no folder {path}; give a folder that holds one folder of images per class."
        )
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
    """The folders that hold the class folders for training and for testing."""
    if (path / "train").is_dir() and _folders(path / "train"):
        return path / "train", next((root for root in (path / "test", path / "val") if root.is_dir()), None)
    return path, None


def read_imagenet(request: ReadRequest) -> RawData:
    """ImageNet from path/train/CLASS/* and path/val/CLASS/*. Its validation images are the test split.

    As for AlexNet, the shorter side is scaled to 256 (for windows of 224) and the center is kept. Training
    uses a random window of it, evaluation the window in the middle.
    """
    path, size = request.location, request.size or 224
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
        raise UserError(f"{root} must hold a folder of images for each of at least two classes.")
    return classes


def _listed(root: Path, classes: tuple[str, ...]) -> tuple[list[str], Tensor]:
    """All image files of the class folders in alphabetical order, and their classes [N]."""
    number = {name: i for i, name in enumerate(classes)}
    files: list[str] = []
    labels: list[int] = []
    for folder in sorted(_folders(root)):
        if folder.name not in number:
            raise UserError(f"The class {folder.name!r} in {root} has no training images; add some.")
        images = sorted(file.path for file in os.scandir(folder) if _is_image(file.name))
        if not images:
            raise UserError(f"The folder {folder} does not hold any images; remove it or add some.")
        files += images
        labels += [number[folder.name]] * len(images)
    if not files:
        raise UserError(f"{root} does not hold images in class folders; put them into one folder per class.")
    return files, torch.tensor(labels, dtype=torch.int64)


def _folders(root: Path) -> list[Path]:
    return [folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith(".")]


def _is_image(name: str) -> bool:
    """Whether a file name has the suffix of an image. Hidden files and other files are skipped."""
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


def _decoded(examples: Examples) -> TensorExamples:
    parts = list(examples.in_order(DECODED_AT_ONCE))
    return TensorExamples(torch.cat(parts) if parts else torch.empty(0), examples.labels)
