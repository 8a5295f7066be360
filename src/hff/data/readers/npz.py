"""The user's own arrays in an .npz file: tables, or images that are already decoded."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hff.data.dataset import RawData
from hff.data.examples import TensorExamples
from hff.data.splits import carve_test
from hff.errors import UserError

Array = npt.NDArray[Any]


def read_npz(path: Path) -> RawData:
    """x and y, and perhaps x_test, y_test and the names `classes`.

    x: a table [N, D], or images [N, H, W], [N, H, W, C] or [N, C, H, W] with 1 or 3 channels.
    y: class numbers from 0 on, or class names [N]. Without x_test a fifth is for testing, whatever the seed.
    """
    arrays = _arrays(path.expanduser())
    for name in ("x", "y"):
        if name not in arrays:
            raise UserError(f"{path} holds no array {name!r}; save it with numpy.savez(path, x=x, y=y).")
    if len(np.atleast_1d(arrays["y"])) == 0:
        raise UserError(f"{path} is empty; save some rows of x and y in it.")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise UserError(f"{path} must hold both of x_test and y_test, or neither.")
    names = tuple(_words(arrays["classes"])) if "classes" in arrays else _class_names(arrays["y"], path)
    train = _examples(arrays["x"], arrays["y"], names, "", path)
    if "x_test" in arrays:
        test = _examples(arrays["x_test"], arrays["y_test"], names, "_test", path)
        if _form(test.x) != _form(train.x):
            raise UserError(
                f"In {path} x holds {_form(train.x)} in each row and x_test {_form(test.x)}; make them alike."
            )
    else:
        kept, taken = carve_test(train.labels, "npz")
        train, test = train.subset(kept), train.subset(taken)
    return RawData(train, test, names, tuple(train.x.shape[1:]), scale=_scale(train.x))


def _arrays(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile):
        # NumPy's own reasons advise to unpickle the file, which would run whatever it holds.
        raise UserError(
            f"{path} cannot be read as an .npz file of plain arrays; save it with numpy.savez."
        ) from None


def _class_names(y: Array, path: Path) -> tuple[str, ...]:
    """The names of the classes: the labels themselves, sorted if they are words."""
    if y.dtype.kind in "US":
        names = tuple(sorted(set(_words(y))))
    else:
        numbers = np.unique(_numbers(y, "y", path))
        gaps = np.flatnonzero(numbers != np.arange(len(numbers)))
        if len(gaps) and numbers[0] >= 0:
            raise UserError(
                f"No row of y in {path} has the label {gaps[0]}; number the classes from 0 on without a gap."
            )
        names = tuple(str(number) for number in numbers)
    if len(names) < 2:
        raise UserError(f"y in {path} holds {len(names)} class; at least two are needed to tell apart.")
    return names


def _examples(x: Array, y: Array, names: tuple[str, ...], suffix: str, path: Path) -> TensorExamples:
    if len(np.atleast_1d(x)) != len(np.atleast_1d(y)):
        raise UserError(
            f"x{suffix} in {path} holds {len(np.atleast_1d(x))} rows but y{suffix} {len(np.atleast_1d(y))};"
            f" give one label to each row."
        )
    return TensorExamples(_values(x, f"x{suffix}", path), _labels(y, names, f"y{suffix}", path))


def _labels(y: Array, names: tuple[str, ...], name: str, path: Path) -> Tensor:
    if y.dtype.kind in "US":
        number = {word: i for i, word in enumerate(names)}
        words = _words(y)
        strange = sorted(set(words) - set(number))
        if strange:
            raise UserError(f"{name} in {path} holds the class {strange[0]!r}, which y does not.")
        return torch.tensor([number[word] for word in words], dtype=torch.int64)
    numbers = _numbers(y, name, path)
    wrong = numbers[(numbers < 0) | (numbers >= len(names))]
    if len(wrong):
        raise UserError(
            f"{name} in {path} holds the label {wrong[0]}; the classes are 0 to {len(names) - 1}."
        )
    return torch.from_numpy(numbers.astype(np.int64))


def _words(y: Array) -> list[str]:
    return [word.decode() if isinstance(word, bytes) else str(word) for word in y.ravel().tolist()]


def _numbers(y: Array, name: str, path: Path) -> Array:
    if y.dtype.kind not in "iub" or y.size != len(np.atleast_1d(y)):
        raise UserError(f"{name} in {path} must be one integer or word a row, not {y.dtype} {list(y.shape)}.")
    return y.ravel().astype(np.int64)


def _values(x: Array, name: str, path: Path) -> Tensor:
    """Bytes or floats [N, D] or [N, C, H, W]."""
    if x.dtype.kind not in "iubf" or x.ndim not in (2, 3, 4) or x.size == 0:
        raise UserError(f"{name} in {path} must be a table or images, not {x.dtype} {list(x.shape)}.")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in (1, 3):
        if x.shape[3] not in (1, 3):
            raise UserError(f"{name} in {path} must have 1 or 3 channels, not the shape {list(x.shape)}.")
        x = x.transpose(0, 3, 1, 2)
    wrong = int((~np.isfinite(x)).sum()) if x.dtype.kind == "f" else 0
    if wrong:
        raise UserError(f"{name} in {path} holds {wrong} values that are NaN or infinite; replace them.")
    if x.ndim == 4 and x.dtype.kind in "iu" and x.min() >= 0 and x.max() <= 255:
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.uint8))
    # Wide integers and doubles stay exact until they are centred: a date in seconds needs more than float32.
    wide = x.ndim == 2 and x.dtype.itemsize > 4
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64 if wide else np.float32))


def _form(x: Tensor) -> str:
    return f"{'floats' if x.is_floating_point() else 'bytes'} {list(x.shape[1:])}"


def _scale(x: Tensor) -> float:
    """255 for images that hold values up to it, else 1."""
    if x.ndim != 4:
        return 1.0
    return 255.0 if x.dtype is torch.uint8 or (x.min() >= 0 and 1 < x.max() <= 255) else 1.0
