"""Reading pickles of plain values without running any code that they may contain."""

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hff.data.info import ReadRequest
from hff.errors import UserError

MAX_SIZE = 2**30
"""The largest file to read, in bytes. The largest public one has 155 MB."""

MAX_INSTRUCTIONS = 2_000_000
"""The largest number of instructions in a pickle. The largest public one has about 300,000."""


def read_pickle(path: Path, request: ReadRequest) -> dict[str, Any]:
    """A dictionary of plain values and arrays of integers; a pickle of anything else is refused.

    Values that are neither arrays nor lists of plain values are left out.
    """
    try:
        if path.stat().st_size > MAX_SIZE:
            raise _Damaged(f"it is larger than {MAX_SIZE // 2**20} MB")
        raw = path.read_bytes()
        _check(raw)
        content = _PlainUnpickler(io.BytesIO(raw), len(raw)).load()
        if not isinstance(content, dict):
            raise _Damaged("it does not hold a dictionary")
        # Python 3 may have written the same dictionary with keys in bytes.
        named = {key.decode("latin1") if isinstance(key, bytes) else key: v for key, v in content.items()}
        plain = {key: v.values() if isinstance(v, _Array) else v for key, v in named.items()}
    except _Forbidden as error:
        raise UserError(
            f"{path} tries to run {error}, which a data set does not need; delete the file (it was not run)."
        ) from None
    except _Damaged as error:
        raise request.damaged(path, str(error)) from None
    except Exception as error:  # a damaged pickle can raise any exception
        raise request.damaged(path, f"it cannot be unpickled: {type(error).__name__}") from None
    return {key: v for key, v in plain.items() if isinstance(v, np.ndarray) or _is_flat_list(v)}


def _is_flat_list(value: Any) -> bool:
    """Whether the value is a list of numbers or words. Lists that share other lists could be endless."""
    return isinstance(value, list) and all(type(item) in (int, str, bytes) for item in value)


def _check(raw: bytes) -> None:
    """Refuses pickles that would take a lot of memory or time to read, without building anything.

    The instructions are followed on a stack that holds only whether each value is plain. An index far beyond
    the number of stored values would allocate memory for all indices below it, and the hash of a tuple of
    shared tuples takes exponential time, so only plain values may be keys.
    """
    stack: list[bool | None] = []
    stored: dict[int, bool] = {}
    for count, (op, argument, _) in enumerate(pickletools.genops(raw)):
        name = op.name
        if count > MAX_INSTRUCTIONS:
            raise _Damaged(f"it has more than {MAX_INSTRUCTIONS} instructions")
        if isinstance(argument, int) and abs(argument) >= 2**64:
            raise _Damaged("it holds a number of more than 64 bits")
        if name in PLAIN:
            stack.append(True)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            index = len(stored) if name == "MEMOIZE" else int(argument or 0)
            if index > count:
                raise _Damaged("it stores a value at an index that is too large")
            stored[index] = bool(stack[-1])
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(stored[int(argument or 0)])
        elif name in ("EMPTY_SET", "ADDITEMS", "FROZENSET"):
            raise _Damaged("it holds a set")
        else:
            before, after = op.stack_before, op.stack_after
            if pickletools.markobject in before:
                items = []
                while (top := stack.pop()) is not None:
                    items.append(top)
                items.reverse()
                taken = before.index(pickletools.markobject)
                kept = [stack.pop() for _ in range(taken)]
            else:
                kept = [stack.pop() for _ in before]
                items = [bool(value) for value in reversed(kept[:2])]
            if name in ("SETITEM", "SETITEMS", "DICT") and not all(items[::2]):
                raise _Damaged("a key of a dictionary is not a plain value")
            if name == "DUP":
                stack += [kept[0], kept[0]]
            elif name == "BUILD":
                stack.append(kept[1])
            elif pickletools.markobject in after:
                stack.append(None)
            else:
                stack += [not any(kind is one for one in CONTAINERS) for kind in after]


CONTAINERS = (pickletools.pytuple, pickletools.pylist, pickletools.pydict)

PLAIN = frozenset(
    op.name
    for op in pickletools.opcodes
    if not op.stack_before
    and len(op.stack_after) == 1
    and op.stack_after[0] not in (*CONTAINERS, pickletools.pyset, pickletools.markobject)
    and "GET" not in op.name
)
"""The instructions that add a plain value, which are by far the most frequent ones."""


class _Damaged(Exception):
    """The reason why a pickle is damaged, as part of a sentence."""


class _Forbidden(Exception):
    """A pickle refers to something that is not part of an array."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads only plain values and arrays of integers.

    A pickle is a program that can call every function it can name. Here it can name only the few objects
    below, which just store their arguments.
    """

    def __init__(self, file: io.BytesIO, size: int) -> None:
        super().__init__(file, encoding="latin1")
        self.budget = size
        """The number of characters that may still be encoded: a pickle can refer to one text many times."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _reconstruct
        known = {
            ("numpy", "ndarray"): _Array,
            ("numpy", "dtype"): _Dtype,
            ("_codecs", "encode"): self._encode,
        }
        if (module, name) not in known:
            raise _Forbidden(f"{module}.{name}")
        return known[module, name]

    def _encode(self, text: str, encoding: str) -> bytes:
        if encoding != "latin1":
            raise _Forbidden(f"the codec {encoding}")
        self.budget -= len(text)
        if self.budget < 0:
            raise _Damaged("it uses the same text too often")
        return text.encode("latin1")


class _Dtype:
    """Stands in for numpy.dtype in a pickle."""

    def __init__(self, code: str, *_: Any) -> None:
        self.dtype = np.dtype(_checked(code, str))
        if self.dtype.kind not in "ui":
            raise _Forbidden(f"an array of {self.dtype}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(_checked(state[1], str))


class _Array:
    """Stands in for numpy.ndarray in a pickle. Its content is converted only if it is used."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def values(self) -> npt.NDArray[Any]:
        _, shape, kind, by_columns, raw = self.state
        lengths = tuple(_checked(length, int) for length in _checked(shape, tuple))
        if any(length < 0 for length in lengths):
            raise _Damaged("an array has a negative shape")
        content = raw.encode("latin1") if isinstance(raw, str) else _checked(raw, bytes)
        dtype = _checked(kind, _Dtype).dtype
        return np.frombuffer(content, dtype).reshape(lengths, order="F" if by_columns is True else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Damaged(f"it holds a {type(value).__name__} where a {kind.__name__} is expected")
    return value
