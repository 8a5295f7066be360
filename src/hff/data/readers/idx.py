"""The IDX format of MNIST and similar data sets."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from hff.data.examples import TensorExamples
from hff.data.info import ReadRequest
from hff.data.raw import RawData

Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""The layout of MNIST."""

DEFLATE_RATIO = 1100
"""Gzip cannot compress better than 1032:1."""


def read_idx(request: ReadRequest) -> RawData:
    """Gray images [N, 1, H, W] of the shape `info.in_shape`, from the four files of MNIST's layout."""
    files = request.files
    in_shape = request.info.in_shape or (1, 28, 28)
    splits = []
    for images, labels in (files[:2], files[2:]):
        x, y = read_idx_file(images, 3, request), read_idx_file(labels, 1, request).astype(np.int64)
        if x.shape[1:] != in_shape[1:]:
            size, wanted = ("x".join(map(str, shape)) for shape in (x.shape[1:], in_shape[1:]))
            raise request.damaged(images, f"its images have {size} pixels, not {wanted}")
        splits.append(labeled(x[:, None], y, labels, request))
    return RawData(splits[0], splits[1], request.class_names, in_shape)


def read_idx_file(path: Path, dimensions: int, request: ReadRequest) -> Bytes:
    """The array in a file, which must have the given number of dimensions and may be compressed by gzip.

    The sizes in the header are compared with the size of the file before the rest is read.
    """
    header = 4 + 4 * dimensions
    start = read_bytes(path, header, request)
    if len(start) < header or start[:4] != bytes((0, 0, 8, dimensions)):
        raise request.damaged(path, f"it does not start like an IDX file with {dimensions} dimensions")
    shape = tuple(int(n) for n in np.frombuffer(start, ">u4", count=dimensions, offset=4))
    wanted, size = math.prod(shape), file_size(path, request)
    packed = path.suffix == ".gz"
    # The size of compressed content is not known in advance, but it has a bound.
    found = DEFLATE_RATIO * size if packed else size - header
    content = b""
    if wanted == found or (packed and wanted < found):
        content = read_bytes(path, header + wanted + 1, request)
        found = len(content) - header
    if wanted != found:
        raise request.damaged(path, f"it should hold {wanted} bytes and holds {found}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def file_size(path: Path, request: ReadRequest) -> int:
    """The size of a file on the disk."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise request.damaged(path, f"it cannot be read: {error}") from None


def read_bytes(path: Path, count: int, request: ReadRequest) -> bytes:
    """At most `count` bytes of a file, decompressed if its name ends with .gz."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return bytes(file.read(count))
    except (OSError, EOFError, zlib.error) as error:
        raise request.damaged(path, f"it cannot be read: {error}") from None


def labeled(x: Bytes, y: Labels, labels_file: Path, request: ReadRequest) -> TensorExamples:
    """Images [N, C, H, W] with labels [N], after checking that both match."""
    if len(x) != len(y):
        raise request.damaged(labels_file, f"it holds {len(y)} labels for {len(x)} images")
    if len(y) == 0:
        raise request.damaged(labels_file, "it is empty")
    classes = len(request.class_names)
    if y.min() < 0 or y.max() >= classes:
        wrong = y[(y < 0) | (y >= classes)][0]
        reason = f"it holds the label {wrong}, but the labels of {request.name} are 0 to {classes - 1}"
        raise request.damaged(labels_file, reason)
    return TensorExamples(torch.from_numpy(x.copy()), torch.from_numpy(y))
