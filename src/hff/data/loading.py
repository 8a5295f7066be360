"""`load_data`: a data set by its name."""

import math
import os
import warnings
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Literal

import torch

from hff.data.augmentation import AugmentationName
from hff.data.catalogue import datasets
from hff.data.dataset import DataSet
from hff.data.examples import Examples
from hff.data.fetching.files import find, get, verify
from hff.data.info import DataSetInfo, ReadRequest
from hff.data.memory import available_memory, in_bytes
from hff.data.raw import RawData
from hff.data.readers.images import enlarged
from hff.data.statistics import CHUNK, resized
from hff.errors import UserError


class DataWarning(UserWarning):
    """Some of the user's data is not used. The same sentence is in `DataSet.warnings`."""


def load_data(
    name: str,
    *,
    data_dir: Path | None = None,
    validation: int | float = 0.1,
    augment: AugmentationName = "auto",
    seed: int = 0,
    path: Path | None = None,
    classes: int | None = None,
    limit: int | None = None,
    size: int | None = None,
    bad_images: Literal["refuse", "skip"] = "refuse",
    in_shape: tuple[int, ...] | None = None,
    download: bool = True,
) -> DataSet:
    """Loads a data set and carves a validation split from its training split.

    Args:
        name: one of `hff.data.datasets`.
        data_dir: the folder to search first for files, and to download missing ones into.
        validation: training examples to carve for validation: a count, or a share below 1; 0 for none.
        augment: the augmentation of training images; auto is the usual one for the data set.
        seed: the seed that decides which examples are carved for validation.
        path: the path of your own data: a folder of images (folder, imagenet) or an .npz file (npz).
        classes: use only the first classes, this many of them.
        limit: use at most this many training examples.
        size: resize the images to this height and width.
        bad_images: refuse image files that cannot be read, or skip them with a warning.
        in_shape: the shape [C, H, W] that a trained network takes; image files are converted to it.
        download: download missing files.
    """
    info = datasets.find(name)
    for option, value in (("classes", classes), ("limit", limit), ("size", size)):
        _require_whole_number(option, value)
    data_dir, path = _path("data_dir", data_dir), _path("path", path)
    if size is not None:
        if size < 1:
            raise UserError(f"The size of images must be at least 1 pixel, not {size}.")
        # Image files are decoded in chunks, whatever their number.
        _require_memory(CHUNK, (3, size, size), torch.float32)
    if bad_images not in ("refuse", "skip"):
        raise UserError(f"bad_images must be 'refuse' or 'skip', not {bad_images!r}.")
    path = _location(name, info, data_dir, path, download)
    request = ReadRequest(name, info, path, data_dir, size, in_shape, bad_images, download)
    raw = _resized(info.read(request), size)
    for note in raw.notes:
        warnings.warn(note, DataWarning, stacklevel=2)
    if classes is not None:
        raw = _first_classes(raw, classes)
    return DataSet.from_raw(
        name,
        raw,
        validation=validation,
        limit=limit,
        seed=seed,
        augment=augment,
        default_augmentation=info.augmentation,
        mean=info.mean,
        std=info.std,
    )


def _require_whole_number(option: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise UserError(f"{option} must be a whole number, not {value!r}.")


def _path(option: str, value: object) -> Path | None:
    if value is not None and not isinstance(value, str | os.PathLike):
        raise UserError(f"{option} must be a path, not {value!r}.")
    return None if value is None else Path(value)


def _location(
    name: str, info: DataSetInfo, data_dir: Path | None, path: Path | None, download: bool
) -> Path | None:
    """The folder or file to read. None for data without files."""
    if path is not None:
        if not info.takes_path:
            raise UserError(
                f"The data set {name} does not take a path; use `folder` or `npz` for your own data."
            )
        return path
    if info.needs_path:
        raise UserError(f"The data set {name} needs a path: the path of your {info.path_to} (--data.path).")
    if info.source is None:
        return None
    found = find(name, data_dir)
    if found is None and info.source.downloads and not download:
        raise UserError(f"The files of {name} are not on this machine; run `hff data get {name}`.")
    folder = found or get(name, data_dir)
    verify(name, folder)
    return folder


def _resized(raw: RawData, size: int | None) -> RawData:
    """Images of the given height and width, unless the reader already returned this size."""
    if size is None or raw.in_shape[1:] == (size, size):
        return raw
    if len(raw.in_shape) != 3:
        raise UserError("A table does not have a size; leave `size` out.")
    stored = enlarged((size, size), raw.margin)
    count = sum(len(split) for split in (raw.train, raw.test, raw.validation) if split is not None)
    dtype = raw.train.fetch(torch.tensor([0])).dtype
    _require_memory(count, (raw.in_shape[0], *stored), dtype)
    return replace(
        raw,
        train=resized(raw.train, stored),
        test=raw.test and resized(raw.test, stored),
        validation=raw.validation and resized(raw.validation, stored),
        in_shape=(raw.in_shape[0], size, size),
        resized=f"scaled from {raw.in_shape[1]}x{raw.in_shape[2]} to {size}x{size} pixels",
    )


def _require_memory(count: int, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Refuses images [count, *shape] that need more than half of the available memory."""
    needed, memory = count * math.prod(shape) * dtype.itemsize, available_memory()
    if needed > memory // 2:
        raise UserError(
            f"{count:,} images of {shape[1]}x{shape[2]} pixels need {in_bytes(needed)}, more than half of "
            f"the {in_bytes(memory)} of available memory; choose a smaller size."
        )


def _first_classes(raw: RawData, count: int) -> RawData:
    if not 2 <= count <= len(raw.classes):
        raise UserError(f"The number of classes must be 2 to {len(raw.classes)}, not {count}.")

    def kept(examples: Examples) -> Examples:
        return examples.subset(torch.nonzero(examples.labels < count).flatten())

    return replace(
        raw,
        train=kept(raw.train),
        test=raw.test and kept(raw.test),
        validation=raw.validation and kept(raw.validation),
        classes=raw.classes[:count],
    )
