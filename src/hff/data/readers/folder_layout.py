"""What the folders of an image folder mean: splits, classes, and images without labels."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hff.data.readers.images import SUFFIXES
from hff.errors import UserError

TRAIN = ("train", "training")
VALIDATION = ("val", "valid", "validation")
TEST = ("test", "testing")
"""The names of the folders of a split, in any case."""

NOT_IMAGES = frozenset(
    {".csv", ".db", ".doc", ".docx", ".gz", ".h5", ".htm", ".html", ".ini", ".json", ".jsonl", ".log", ".mat"}
    | {".md", ".npy", ".npz", ".pdf", ".pkl", ".py", ".tar", ".toml", ".tsv", ".txt", ".xml", ".yaml", ".yml"}
    | {".zip"}
)
"""The suffixes of files that are no surprise beside images. All others that cannot be read are reported."""


class Listed(NamedTuple):
    """The image files of a split."""

    files: list[str]
    labels: Tensor
    """The class of each file, int64 [N]."""


@dataclass(frozen=True)
class Layout:
    """The files of each split of an image folder."""

    classes: tuple[str, ...]
    train: Listed
    validation: Listed | None
    test: Listed | None
    notes: tuple[str, ...]
    """What was ignored, one sentence each."""


def find_layout(path: Path, least_classes: int = 2) -> Layout:
    """The splits of an image folder with this many classes or more, as `read_folder` describes them."""
    train = _split(path, TRAIN)
    if train is None or not _folders(train) or (train.name != "train" and _images_inside(train)):
        _refuse_splits_as_classes(path)
        classes = class_names(path, least_classes)
        return Layout(classes, listed(path, classes), None, None, _ignored([path]))
    classes = class_names(train, least_classes)
    notes: tuple[str, ...] = ()
    roots = {"validation": _split(path, VALIDATION), "test": _split(path, TEST)}
    splits = {name: _labeled(root, classes) if root else None for name, root in roots.items()}
    if roots["validation"] and not splits["validation"]:
        raise UserError(
            f"The images in {roots['validation']} are neither in class folders nor listed in a file "
            "val_annotations.txt, so their classes are unknown; put them into one folder per class."
        )
    if roots["test"] and not splits["test"]:
        notes = (
            f"The images in {roots['test']} are not in class folders, so their classes are unknown and they "
            "are not used for testing.",
        )
    used = [root for root in (train, *roots.values()) if root]
    notes += _unused(path, used)
    return Layout(
        classes, listed(train, classes), splits["validation"], splits["test"], notes + _ignored(used)
    )


def class_names(root: Path, least: int = 2) -> tuple[str, ...]:
    """The names of the class folders in alphabetical order."""
    classes = tuple(sorted(folder.name for folder in _folders(root)))
    if len(classes) < least:
        words = "at least two classes" if least > 1 else "the classes"
        raise UserError(f"{root} must hold a folder of images for each of {words}.")
    return classes


def listed(root: Path, classes: tuple[str, ...]) -> Listed:
    """All image files in the class folders and the folders inside them, in alphabetical order."""
    number = {name: i for i, name in enumerate(classes)}
    files: list[str] = []
    labels: list[int] = []
    for folder in sorted(_folders(root)):
        if folder.name not in number:
            raise UserError(f"The class {folder.name!r} in {root} has no training images; add some.")
        images = sorted(file for file in _files(folder) if _is_image(file))
        if not images:
            endings = sorted({_ending(file) for file in _files(folder)} - {""})
            found = f" (only {', '.join(endings[:5])} files, which are not supported)" if endings else ""
            raise UserError(f"The folder {folder} does not hold any images{found}; remove it or add some.")
        files += images
        labels += [number[folder.name]] * len(images)
    if not files:
        raise UserError(f"{root} does not hold images in class folders; put them into one folder per class.")
    return Listed(files, torch.tensor(labels, dtype=torch.int64))


def _split(path: Path, names: tuple[str, ...]) -> Path | None:
    """The folder of a split. Two of them are refused."""
    found = sorted(folder for folder in _folders(path) if folder.name.lower() in names)
    if len(found) > 1:
        both = " and ".join(folder.name for folder in found)
        raise UserError(f"{path} holds {both}, which mean the same split; keep one of them.")
    return found[0] if found else None


def _refuse_splits_as_classes(path: Path) -> None:
    """Without a training folder, a folder named like a split may be a class if it looks like one."""
    folders = _folders(path)
    named = [folder for folder in folders if folder.name.lower() in TRAIN + VALIDATION + TEST]
    if not named or (
        len(named) < len(folders) and all(_images_inside(folder) or not _folders(folder) for folder in named)
    ):
        return
    names = " and ".join(sorted(folder.name for folder in named))
    raise UserError(
        f"{path} holds {names} but no training folder with class folders inside; put the training images "
        "into train/CLASS."
    )


def _labeled(root: Path, classes: tuple[str, ...]) -> Listed | None:
    """The files of a validation or test folder. None if it holds images without classes."""
    folders = _folders(root)
    if any(folder.name in classes for folder in folders):
        return listed(root, classes)
    annotations = sorted(root.glob("*_annotations.txt"))
    if annotations:
        return _annotated(root, annotations[0], classes)
    inside = [root, *folders] if len(folders) <= 1 else [root]
    if any(_images_inside(folder) for folder in inside):
        return None
    return listed(root, classes)


def _annotated(root: Path, annotations: Path, classes: tuple[str, ...]) -> Listed:
    """The files of Tiny ImageNet's validation folder: each line names a file and its class, and more."""
    number = {name: i for i, name in enumerate(classes)}
    files = {os.path.basename(file): file for file in _files(root) if _is_image(file)}
    labels: dict[str, int] = {}
    lines = annotations.read_text(encoding="utf-8", errors="replace").splitlines()
    for i, line in enumerate(lines, 1):
        name, label, *_ = [*line.split("\t" if "\t" in line else None), "", ""]
        if not line.strip():
            continue
        if name not in files:
            raise UserError(f"Line {i} of {annotations} names {name!r}, which is not in {root}; correct it.")
        if label not in number:
            raise UserError(
                f"Line {i} of {annotations} names the class {label!r}, which is not a training class; "
                "correct it."
            )
        labels[files[name]] = number[label]
    missing = len(files) - len(labels)
    if missing or not labels:
        raise UserError(f"{annotations} does not name the class of {missing} images in {root}; add them.")
    ordered = sorted(labels)
    return Listed(ordered, torch.tensor([labels[file] for file in ordered], dtype=torch.int64))


def _unused(path: Path, used: list[Path]) -> tuple[str, ...]:
    """A sentence about the folders of images beside the splits."""
    others = (folder for folder in _folders(path) if folder not in used)
    found = sorted(folder.name for folder in others if any(map(_is_image, _files(folder))))
    if not found:
        return ()
    splits = ", ".join(folder.name for folder in used)
    return (f"Folders of images in {path} were ignored ({', '.join(found)}); only {splits} are used.",)


def _ignored(roots: list[Path]) -> tuple[str, ...]:
    """A sentence about the files in class folders that may be images but cannot be read."""
    folders = [folder for root in roots for folder in _folders(root)]
    counts = Counter(_ending(file) for folder in folders for file in _files(folder))
    found = [
        f"{count} {ending or 'without an ending'}"
        for ending, count in sorted(counts.items())
        if ending not in SUFFIXES | NOT_IMAGES
    ]
    if not found:
        return ()
    return (f"Files in {roots[0]} were ignored ({', '.join(found)}); convert images to PNG or JPEG.",)


def _folders(root: Path) -> list[Path]:
    """The folders inside a folder, without hidden ones and those that macOS adds to archives."""
    return [
        folder
        for folder in root.iterdir()
        if folder.is_dir() and not folder.name.startswith(".") and folder.name != "__MACOSX"
    ]


def _files(folder: Path) -> Iterator[str]:
    """The paths of all files inside, without hidden files and folders."""
    for inside, folders, names in os.walk(os.fspath(folder)):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__MACOSX"]
        yield from (os.path.join(inside, name) for name in names if not name.startswith("."))


def _images_inside(folder: Path) -> bool:
    """Whether there are images in the folder itself."""
    return any(_is_image(file.name) and not file.name.startswith(".") for file in os.scandir(folder))


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _is_image(name: str) -> bool:
    return _ending(name) in SUFFIXES
