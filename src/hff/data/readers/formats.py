"""The file formats of MNIST and CIFAR, read with suspicion: each file is checked before it is believed."""

import gzip
import math
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hff.errors import UserError

Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

PIXELS = 3 * 32 * 32


def damaged(path: Path, what: str, name: str) -> UserError:
    """The error for a file of the data set `name` that is not what it should be."""
    return UserError(f"{path} is damaged ({what}); delete it and run `hff data get {name}`.")


def read_idx(path: Path, dimensions: int, name: str) -> Bytes:
    """An array of bytes in MNIST's own format, plain or compressed by gzip.

    Args:
        path: the file.
        dimensions: how many dimensions the array must have.
        name: the data set, for the error message.
    """
    content = _content(path, name)
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes((0, 0, 8, dimensions)):
        raise damaged(path, f"it does not begin like a file of {dimensions}-dimensional bytes", name)
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", count=dimensions, offset=4))
    if len(content) - header != math.prod(shape):
        raise damaged(path, f"it announces {math.prod(shape)} bytes and holds {len(content) - header}", name)
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def read_cifar_pickle(path: Path, labels_key: str, name: str) -> tuple[Bytes, Labels]:
    """Images [N, 3, 32, 32] and labels [N] of a CIFAR file in the Python format."""
    batch = read_pickle(path, name)
    x, labels = batch.get("data"), batch.get(labels_key)
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS:
        raise damaged(path, "it holds no images of 32x32 pixels", name)
    if not isinstance(labels, list | np.ndarray) or len(labels) != len(x):
        raise damaged(path, f"it does not hold one of its {labels_key} for each of {len(x)} images", name)
    try:
        y = np.array(labels, dtype=np.int64).reshape(len(x))
    except (TypeError, ValueError):
        raise damaged(path, f"its {labels_key} are no integers", name) from None
    return x.reshape(-1, 3, 32, 32), y


def read_cifar_binary(path: Path, label_bytes: int, name: str) -> tuple[Bytes, Labels]:
    """Images [N, 3, 32, 32] and labels [N] of a CIFAR file in the binary format, the fine label last."""
    content = np.frombuffer(_content(path, name), np.uint8)
    row = label_bytes + PIXELS
    if len(content) == 0 or len(content) % row:
        raise damaged(path, f"{len(content)} bytes are no whole number of images of {row} bytes", name)
    rows = content.reshape(-1, row)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)


def _content(path: Path, name: str) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, f"it cannot be read: {error}", name) from None


def read_pickle(path: Path, name: str) -> dict[str, Any]:
    """A dictionary of plain values and arrays of integers; whatever else a pickle asks for is refused."""
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, encoding="latin1").load()
    except _Forbidden as error:
        raise UserError(
            f"{path} asks to run {error}, which no data set needs; it was not run: delete the file."
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise damaged(path, f"it cannot be unpickled: {type(error).__name__}", name) from None
    if not isinstance(content, dict):
        raise damaged(path, "it holds no dictionary", name)
    # Written under Python 3, the same dictionary may have its keys as bytes.
    named = {key.decode("latin1") if isinstance(key, bytes) else str(key): v for key, v in content.items()}
    return {key: v.values if isinstance(v, _Array) else v for key, v in named.items()}


class _Forbidden(Exception):
    """A pickle names something other than an array's parts."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads plain values and arrays of integers only.

    A pickle is a program that may call whatever it can name; this one can name the few things below, none of
    which does more than keep what it is given.
    """

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _reconstruct
        known = {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Dtype, ("_codecs", "encode"): _encode}
        if (module, name) not in known:
            raise _Forbidden(f"{module}.{name}")
        return known[module, name]


class _Dtype:
    """Stands for numpy.dtype in a pickle."""

    def __init__(self, code: str, *_: Any) -> None:
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "ui":
            raise _Forbidden(f"an array of {self.dtype}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands for numpy.ndarray in a pickle."""

    values: npt.NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, raw = state
        content = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        self.values = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if by_columns else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _Forbidden(f"the codec {encoding}")
    return text.encode("latin1")
