"""Reading pickles of plain values without running any code that they may contain."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hff.data.info import ReadRequest
from hff.errors import UserError


def read_pickle(path: Path, request: ReadRequest) -> dict[str, Any]:
    """A dictionary of plain values and arrays of integers; a pickle of anything else is refused."""
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, encoding="latin1").load()
    except _Forbidden as error:
        raise UserError(
            f"{path} tries to run {error}, which a data set does not need; delete the file (it was not run)."
        ) from None
    except Exception as error:  # a damaged pickle can raise any exception
        raise request.damaged(path, f"it cannot be unpickled: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise request.damaged(path, "it does not hold a dictionary")
    # Python 3 may have written the same dictionary with keys in bytes.
    named = {key.decode("latin1") if isinstance(key, bytes) else str(key): v for key, v in content.items()}
    return {key: v.values if isinstance(v, _Array) else v for key, v in named.items()}


class _Forbidden(Exception):
    """A pickle refers to something that is not part of an array."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads only plain values and arrays of integers.

    A pickle is a program that can call every function it can name. Here it can name only the few objects
    below, which just store their arguments.
    """

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _reconstruct
        known = {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Dtype, ("_codecs", "encode"): _encode}
        if (module, name) not in known:
            raise _Forbidden(f"{module}.{name}")
        return known[module, name]


class _Dtype:
    """Stands in for numpy.dtype in a pickle."""

    def __init__(self, code: str, *_: Any) -> None:
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "ui":
            raise _Forbidden(f"an array of {self.dtype}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands in for numpy.ndarray in a pickle."""

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
