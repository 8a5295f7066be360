"""Inputs without labels, for predictions: image files, .npz files and arrays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hff.data.preprocessing import Preprocessing
from hff.data.readers.images import SUFFIXES
from hff.data.readers.npz_file import read_arrays
from hff.data.statistics import brightness
from hff.errors import UserError

Files = str | Path | Sequence[str | Path]
Arrays = Tensor | npt.NDArray[Any] | Sequence[Any]

TOLERANCE = 0.1
"""How far the brightness of an image may be outside the range of the training images, from 0 to 1."""


@dataclass(frozen=True)
class Origin:
    """Where an input comes from."""

    file: Path | None = None
    row: int | None = None
    """The row in an .npz file."""
    note: str = ""
    """What is unusual about the input. Empty if nothing is."""


class InputReader:
    """Reads inputs and turns them into batches for a network.

    Args:
        preprocessing: turns stored values into network inputs. None if arrays are passed on as they are.
        expected: the lowest and the highest brightness of the training images; None if not known.
        batch_size: the number of inputs in a batch.
        invert: whether to swap dark and bright in images.
    """

    def __init__(
        self,
        preprocessing: Preprocessing | None,
        expected: tuple[float, float] | None = None,
        batch_size: int = 64,
        invert: bool = False,
    ) -> None:
        self.preprocessing = preprocessing
        self.expected = expected
        self.batch_size = batch_size
        self.invert = invert

    def batches(self, inputs: Files | Arrays) -> Iterator[tuple[Tensor, list[Origin]]]:
        """Batches of network inputs [B, ...], and the origin of each input."""
        for stored, origins in self._stored(inputs):
            if self.preprocessing is None:
                yield stored.float(), origins
                continue
            is_image = len(self.preprocessing.size) == 3
            if self.invert:
                if not is_image:
                    raise UserError("The rows of a table cannot be inverted; leave `invert` out.")
                stored = self.preprocessing.scale - stored.float()
            if is_image and self.expected is not None:
                origins = self._noted(stored, origins, self.expected)
            yield self.preprocessing(stored), origins

    def _noted(
        self, images: Tensor, origins: Sequence[Origin], expected: tuple[float, float]
    ) -> list[Origin]:
        """The origins, with a note if the brightness of an image [B, C, H, W] is unusual."""
        assert self.preprocessing is not None
        low, high = expected
        found = brightness(images, self.preprocessing.scale).tolist()
        return [
            Origin(origin.file, origin.row, self._note(value, low, high))
            for origin, value in zip(origins, found, strict=True)
        ]

    def _note(self, value: float, low: float, high: float) -> str:
        """A sentence about the brightness of an image if it is far from that of the training images."""
        if low - TOLERANCE <= value <= high + TOLERANCE:
            return ""
        kind = "brighter" if value > high else "darker"
        text = f"much {kind} (mean {value:.2f}) than the training images ({low:.2f} to {high:.2f})"
        if low - TOLERANCE <= 1 - value <= high + TOLERANCE:
            return f"{text}; it would be like them {'without' if self.invert else 'with'} --invert"
        return text

    def _stored(self, inputs: Files | Arrays) -> Iterator[tuple[Tensor, list[Origin]]]:
        """Batches of inputs before preprocessing."""
        if _are_files(inputs):
            files = input_files(inputs)  # type: ignore[arg-type]
            for path in (file for file in files if file.suffix.lower() == ".npz"):
                yield from self._split(_array_in(path), path)
            images = [file for file in files if file.suffix.lower() != ".npz"]
            for start in range(0, len(images), self.batch_size):
                batch = images[start : start + self.batch_size]
                yield torch.stack([self._image(file) for file in batch]), [Origin(file) for file in batch]
        else:
            yield from self._split(_tensor(inputs), None)  # type: ignore[arg-type]

    def _split(self, x: Tensor, path: Path | None) -> Iterator[tuple[Tensor, list[Origin]]]:
        if self.preprocessing is not None:
            x = _channels_first(x, self.preprocessing.size)
        origins = [Origin(path, row if path else None) for row in range(len(x))]
        for start in range(0, len(x), self.batch_size):
            part = slice(start, start + self.batch_size)
            yield x[part], origins[part]

    def _image(self, file: Path) -> Tensor:
        if self.preprocessing is None:
            raise UserError(
                "Image files need the preprocessing of the training data; pass it as `preprocessing`."
            )
        return self.preprocessing.stored_image(file)


def input_files(paths: Files) -> list[Path]:
    """The given files, with each folder replaced by all images in it, sorted by path."""
    files: list[Path] = []
    for path in map(Path, [paths] if isinstance(paths, str | Path) else paths):
        if not path.exists():
            raise UserError(f"There is no file or folder {path}.")
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
            if not inside:
                raise UserError(f"The folder {path} contains no images.")
            files += inside
        else:
            files.append(path)
    return files


def _array_in(path: Path) -> Tensor:
    arrays = read_arrays(path, ["x"])
    if "x" not in arrays:
        raise UserError(f"{path} does not hold an array 'x'; save it with numpy.savez(path, x=x).")
    return _tensor(arrays["x"])


def _are_files(inputs: Files | Arrays) -> bool:
    if isinstance(inputs, str | Path):
        return True
    return isinstance(inputs, Sequence) and len(inputs) > 0 and isinstance(inputs[0], str | Path)


def _tensor(inputs: Arrays) -> Tensor:
    if isinstance(inputs, Tensor):
        return inputs
    if isinstance(inputs, Sequence) and len(inputs) > 0 and isinstance(inputs[0], Tensor):
        return torch.stack(list(inputs))
    try:
        array = np.asarray(inputs)
    except ValueError:
        raise UserError("All inputs must have the same shape.") from None
    if array.dtype == object and all(
        isinstance(value, bool | int | float | np.number) for value in array.flat
    ):
        # A table of pandas with columns of several types is an array of objects.
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise UserError(f"The inputs must be numbers, image files or folders, not {array.dtype}.")
    if array.dtype.kind == "u" and array.itemsize > 1:
        # Many torch operations do not support wide unsigned integers.
        array = array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(array))


def _channels_first(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Inputs in the layout of the network [N, *shape]."""
    if tuple(x.shape[1:]) == shape or len(shape) != 3:
        return x
    channels, height, width = shape
    if tuple(x.shape[1:]) == (height, width, channels):
        return x.permute(0, 3, 1, 2)
    if channels == 1 and tuple(x.shape[1:]) == (height, width):
        return x.unsqueeze(1)
    return x
