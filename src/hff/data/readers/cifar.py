"""CIFAR-10 and CIFAR-100, in the Python format or the binary format."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hff.data.examples import TensorExamples
from hff.data.info import ReadRequest
from hff.data.raw import RawData
from hff.data.readers.idx import Bytes, Labels, file_size, labeled, read_bytes
from hff.data.readers.plain_pickle import read_pickle

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarReader:
    """Reads images [N, 3, 32, 32]; the last file of the layout is the test split."""

    labels: str = "labels"
    """The key of the labels in the Python format."""
    label_bytes: int = 1
    """The number of labels of each image in the binary format, of which the last one is used."""
    names_file: str = "batches.meta"
    """The file with the names of the classes, which may be missing."""
    names: str = "label_names"
    """The key of the names in that file."""

    def __call__(self, request: ReadRequest) -> RawData:
        parts = [self._examples(file, request) for file in request.files]
        x = torch.cat([part.x for part in parts[:-1]])
        y = torch.cat([part.labels for part in parts[:-1]])
        return RawData(TensorExamples(x, y), parts[-1], self._classes(request), (3, 32, 32))

    def _examples(self, file: Path, request: ReadRequest) -> TensorExamples:
        if file.suffix == ".bin":
            x, y = read_cifar_binary(file, self.label_bytes, request)
        else:
            x, y = read_cifar_pickle(file, self.labels, request)
        return labeled(x, y, file, request)

    def _classes(self, request: ReadRequest) -> tuple[str, ...]:
        """The names in the file beside the images, or else those of the catalogue."""
        file, count = request.location / self.names_file, len(request.class_names)
        if not file.exists():
            return request.class_names
        names = read_pickle(file, request).get(self.names)
        if not isinstance(names, list) or len(names) != count:
            raise request.damaged(file, f"it does not hold the names of {count} classes")
        return tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names)


def read_cifar_pickle(path: Path, labels_key: str, request: ReadRequest) -> tuple[Bytes, Labels]:
    """Images [N, 3, 32, 32] and labels [N] of a file in the Python format."""
    batch = read_pickle(path, request)
    x, labels = batch.get("data"), batch.get(labels_key)
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS:
        raise request.damaged(path, "it does not hold images of 32x32 pixels")
    if not isinstance(labels, list | np.ndarray) or len(labels) != len(x):
        raise request.damaged(path, f"its {labels_key} are not one for each of {len(x)} images")
    try:
        y = np.array(labels, dtype=np.int64).reshape(len(x))
    except (TypeError, ValueError, OverflowError):
        raise request.damaged(path, f"its {labels_key} are not integers") from None
    return x.reshape(-1, 3, 32, 32), y


def read_cifar_binary(path: Path, label_bytes: int, request: ReadRequest) -> tuple[Bytes, Labels]:
    """Images [N, 3, 32, 32] and labels [N] of a file in the binary format."""
    row, size = label_bytes + PIXELS, file_size(path, request)
    if size == 0 or size % row:
        raise request.damaged(path, f"{size} bytes is not a multiple of the {row} bytes of an image")
    rows = np.frombuffer(read_bytes(path, size, request), np.uint8).reshape(-1, row)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)
