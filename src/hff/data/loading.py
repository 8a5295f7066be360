"""`load`: a data set by its name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from hff.data.augmentation import Augmentation, AugmentationName
from hff.data.catalogue import datasets
from hff.data.dataset import DataSet, RawData
from hff.data.examples import Examples
from hff.data.fetching.files import find, get
from hff.data.preprocessing import Preprocessing
from hff.data.readers.folder import read_folder, read_imagenet
from hff.data.readers.npz import read_npz
from hff.data.readers.public import read_cifar, read_digits, read_idx_set
from hff.data.splits import stratified
from hff.data.statistics import channel_statistics, resized
from hff.errors import UserError, unknown


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
    download: bool = True,
) -> DataSet:
    """A data set, its validation split carved from the training split.

    Args:
        name: one of `hff.data.datasets`.
        data_dir: the folder to look for files first, and to put fetched ones into.
        validation: training examples set apart to validate on: a count, or a share below 1; 0 for none.
        augment: how training images are varied; auto is what suits the data set.
        seed: what the choice of validation examples depends on.
        path: your own data: the folder of images (folder, imagenet) or the .npz file (npz).
        classes: use only the first so many classes.
        limit: use only so many training examples.
        size: height and width of the images, which are resized to it.
        download: fetch files that are missing.
    """
    if name not in datasets:
        raise unknown("data set", name, datasets)
    info = datasets[name]
    data_dir, path = (None if place is None else Path(place) for place in (data_dir, path))
    if path is not None and not info.takes_path:
        raise UserError(f"The data set {name} takes no path; use `folder` or `npz` for your own data.")
    if size is not None and size < 1:
        raise UserError(f"The size of images must be at least 1 pixel, not {size}.")
    stored = _read(name, data_dir, path, size, download)
    if classes is not None:
        stored = _first_classes(stored, classes)
    train, held_out = _split(stored.train, validation, limit, seed)
    mean, std = (info.mean, info.std) if info.mean else channel_statistics(train, stored.scale)
    return DataSet(
        name=name,
        classes=stored.classes,
        in_shape=stored.in_shape,
        preprocessing=Preprocessing(mean, std, stored.scale, stored.in_shape, stored.margin),
        train=train,
        validation=held_out,
        test=stored.test,
        augmentation=_augmentation(augment, info.augmentation, stored.in_shape),
    )


def _read(name: str, data_dir: Path | None, path: Path | None, size: int | None, download: bool) -> RawData:
    if name in ("folder", "npz"):
        if path is None:
            kind = "folder of images" if name == "folder" else ".npz file"
            raise UserError(f"The data set {name} needs a path: say where your {kind} is (--data.path).")
        return read_folder(path, size) if name == "folder" else _with_size(read_npz(path), size)
    if name == "imagenet":
        return read_imagenet(path or get(name, data_dir), size or 224)
    if name == "digits":
        return _with_size(read_digits(), size)
    folder = find(name, data_dir)
    if folder is None and not download:
        raise UserError(f"The files of {name} are not on this machine; run `hff data get {name}`.")
    reader: Callable[[str, Path], RawData] = read_cifar if name.startswith("cifar") else read_idx_set
    return _with_size(reader(name, folder or get(name, data_dir)), size)


def _with_size(stored: RawData, size: int | None) -> RawData:
    """Examples in memory, resized."""
    if size is None or stored.in_shape[1:] == (size, size):
        return stored
    if len(stored.in_shape) != 3:
        raise UserError("A table has no size; leave `size` out.")
    train, test = resized(stored.train, size), stored.test and resized(stored.test, size)
    return replace(stored, train=train, test=test, in_shape=(stored.in_shape[0], size, size))


def _first_classes(stored: RawData, count: int) -> RawData:
    if not 2 <= count <= len(stored.classes):
        raise UserError(f"The number of classes must be 2 to {len(stored.classes)}, not {count}.")

    def kept(examples: Examples) -> Examples:
        return examples.subset(torch.nonzero(examples.labels < count).flatten())

    test = None if stored.test is None else kept(stored.test)
    return replace(stored, train=kept(stored.train), test=test, classes=stored.classes[:count])


def _split(
    train: Examples, validation: float, limit: int | None, seed: int
) -> tuple[Examples, Examples | None]:
    """Training and validation examples.

    The validation examples come first, so that a limit leaves them alone; a share is one of what is in use.
    """
    if limit is not None and limit < 1:
        raise UserError(f"The limit must be at least 1 training example, not {limit}.")
    if not validation >= 0 or (validation > 1 and validation % 1):
        raise UserError(f"validation must be a count or a share between 0 and 1, not {validation}.")
    in_use = min(limit or len(train), len(train))
    count = round(validation * in_use) if validation < 1 else int(validation)
    if count >= len(train):
        raise UserError(f"{count} validation examples leave none of {len(train)} to train on; take fewer.")
    held_out = None
    if count:
        rest, taken = stratified(train.labels, count, seed, "validation")
        train, held_out = train.subset(rest), train.subset(taken)
    if limit is not None and limit < len(train):
        train = train.subset(stratified(train.labels, limit, seed, "limit")[1])
    return train, held_out


def _augmentation(augment: str, default: Augmentation, in_shape: tuple[int, ...]) -> Augmentation:
    chosen = Augmentation.named(augment, default)
    if len(in_shape) != 3 and chosen != Augmentation.none():
        raise UserError(f"A table cannot be augmented by {augment!r}; choose 'none'.")
    return chosen
