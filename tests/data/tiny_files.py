"""Writes tiny files in the formats of the public data sets."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from hff.data.readers.idx import IDX_FILES

ChangeSource = Callable[..., None]
"""The type of the fixture `change_source`."""


def idx(array: np.ndarray) -> bytes:
    """An array of bytes in the IDX format."""
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(
    folder: Path, train: int = 40, test: int = 10, compressed: bool = False
) -> dict[str, np.ndarray]:
    """The four files of MNIST, with random images and the classes in turn."""
    rng = np.random.default_rng(0)
    arrays = {
        IDX_FILES[0]: rng.integers(0, 256, (train, 28, 28), dtype=np.uint8),
        IDX_FILES[1]: (np.arange(train) % 10).astype(np.uint8),
        IDX_FILES[2]: rng.integers(0, 256, (test, 28, 28), dtype=np.uint8),
        IDX_FILES[3]: (np.arange(test) % 10).astype(np.uint8),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        content = idx(array)
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return arrays


def cifar_rows(count: int, classes: int, seed: int) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), [i % classes for i in range(count)]


def write_cifar10(folder: Path, meta: bool = True) -> list[tuple[np.ndarray, list[int]]]:
    """The files of CIFAR-10 in the Python format."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for i, name in enumerate((*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")):
        x, y = cifar_rows(10, 10, i)
        (folder / name).write_bytes(
            pickle.dumps({"data": x, "labels": y, "filenames": ["a"] * 10}, protocol=2)
        )
        parts.append((x, y))
    if meta:
        names = [f"kind {i}" for i in range(10)]
        (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}, protocol=2))
    return parts


def write_images(
    root: Path,
    count: int = 5,
    classes: Sequence[str] = "ab",
    size: tuple[int, int] = (8, 6),
    mode: str = "RGB",
) -> None:
    """Images [H, W] in one folder per class; the brightness depends on the class."""
    rng = np.random.default_rng(0)
    for i, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for j in range(count):
            shape = (*size, 3) if mode == "RGB" else size
            pixels = rng.integers(100 * i, 100 * i + 50, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{j}.png")


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def packed(folder: Path, name: str) -> bytes:
    """A tar archive of a folder, with entries that would be written outside the target folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, arcname=name)
        for outside in ("../escaped", "/tmp/escaped", f"{name}/../../escaped", f"{name}/sub/deep"):
            entry = tarfile.TarInfo(outside)
            entry.size = 3
            tar.addfile(entry, io.BytesIO(b"bad"))
        link = tarfile.TarInfo(f"{name}/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return buffer.getvalue()
