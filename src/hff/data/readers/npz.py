"""The user's own arrays in an .npz file."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from hff.data.arrays import Array, raw_from_arrays, scale_of
from hff.data.examples import TensorExamples
from hff.data.info import ReadRequest
from hff.data.raw import RawData
from hff.data.splits import carve_test
from hff.errors import UserError


def read_npz(request: ReadRequest) -> RawData:
    """The arrays x and y, and optionally x_test, y_test, x_validation, y_validation and classes.

    They are those of `DataSet.from_arrays`. Without x_test, a fifth of the examples is used for testing, the
    same fifth for every seed.
    """
    path = request.location
    arrays = _arrays(path)
    for name in ("x", "y"):
        if name not in arrays:
            raise UserError(
                f"{path} does not hold an array {name!r}; save it with numpy.savez(path, x=x, y=y)."
            )
    names = arrays.pop("classes", None)
    classes = None if names is None else [_word(name) for name in names.ravel().tolist()]
    raw = raw_from_arrays(arrays, classes, where=f" in {path}")
    if raw.test is not None:
        return raw
    kept, taken = carve_test(raw.train.labels, "npz")
    train, test = raw.train.subset(kept), raw.train.subset(taken)
    scale = scale_of(train.x) if isinstance(train, TensorExamples) else raw.scale
    return replace(raw, train=train, test=test, scale=scale)


def _word(name: object) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _arrays(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile):
        # NumPy's own message suggests unpickling the file, which would run any code in it.
        raise UserError(
            f"{path} cannot be read as an .npz file of plain arrays; save it with numpy.savez."
        ) from None
