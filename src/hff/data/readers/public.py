"""The public data sets, read from their files into memory."""

from pathlib import Path

import numpy as np
import torch

from hff.data.catalogue import datasets
from hff.data.dataset import RawData
from hff.data.examples import TensorExamples
from hff.data.fetching.files import layout
from hff.data.readers.formats import (
    Bytes,
    Labels,
    damaged,
    read_cifar_binary,
    read_cifar_pickle,
    read_idx,
    read_pickle,
)
from hff.data.splits import carve_test
from hff.errors import UserError


def read_digits() -> RawData:
    """scikit-learn's digits [1797, 1, 8, 8]; a fifth of each class, always the same, is for testing."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.from_numpy(x.astype(np.uint8)).view(-1, 1, 8, 8)
    labels = torch.from_numpy(y.astype(np.int64))
    train, test = carve_test(labels, "digits")
    whole = TensorExamples(images, labels)
    info = datasets["digits"]
    return RawData(whole.subset(train), whole.subset(test), info.class_names, (1, 8, 8), scale=16.0)


def read_idx_set(name: str, folder: Path) -> RawData:
    """MNIST or one of its kind [N, 1, 28, 28]."""
    files = _files(name, folder)
    splits = []
    for images, labels in (files[:2], files[2:]):
        x, y = read_idx(images, 3, name), read_idx(labels, 1, name).astype(np.int64)
        if x.shape[1:] != (28, 28):
            raise damaged(images, f"its images have {x.shape[1]}x{x.shape[2]} pixels, not 28x28", name)
        splits.append(_checked(x[:, None], y, labels, name))
    return RawData(splits[0], splits[1], datasets[name].class_names, (1, 28, 28))


def read_cifar(name: str, folder: Path) -> RawData:
    """CIFAR-10 or CIFAR-100 [N, 3, 32, 32], in the Python or the binary format."""
    parts = [_read_cifar_file(name, file) for file in _files(name, folder)]
    x = torch.cat([part.x for part in parts[:-1]])
    y = torch.cat([part.labels for part in parts[:-1]])
    return RawData(TensorExamples(x, y), parts[-1], _cifar_classes(name, folder), (3, 32, 32))


def _read_cifar_file(name: str, file: Path) -> TensorExamples:
    if file.suffix == ".bin":
        x, y = read_cifar_binary(file, 1 if name == "cifar10" else 2, name)
    else:
        x, y = read_cifar_pickle(file, "labels" if name == "cifar10" else "fine_labels", name)
    return _checked(x, y, file, name)


def _cifar_classes(name: str, folder: Path) -> tuple[str, ...]:
    """The names that lie beside the images, else the well-known ones."""
    file, key = ("batches.meta", "label_names") if name == "cifar10" else ("meta", "fine_label_names")
    if not (folder / file).exists():
        return datasets[name].class_names
    names = read_pickle(folder / file, name).get(key)
    if not isinstance(names, list) or len(names) != datasets[name].classes:
        raise damaged(folder / file, f"it does not hold the names of {datasets[name].classes} classes", name)
    return tuple(str(one) for one in names)


def _checked(x: Bytes, y: Labels, labels_file: Path, name: str) -> TensorExamples:
    if len(x) != len(y):
        raise damaged(labels_file, f"it holds {len(y)} labels for {len(x)} images", name)
    if len(y) == 0:
        raise damaged(labels_file, "it is empty", name)
    classes = datasets[name].classes or 0
    if y.min() < 0 or y.max() >= classes:
        wrong = y[(y < 0) | (y >= classes)][0]
        raise damaged(
            labels_file, f"it holds the label {wrong}, but {name} has the classes 0 to {classes - 1}", name
        )
    return TensorExamples(torch.from_numpy(x.copy()), torch.from_numpy(y))


def _files(name: str, folder: Path) -> tuple[Path, ...]:
    files = layout(name, folder)
    if files is None:
        raise UserError(f"{folder} does not hold all files of {name}; run `hff data get {name}`.")
    return files
