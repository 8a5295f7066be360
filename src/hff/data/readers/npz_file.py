"""Reading an .npz file that may be damaged, or that claims to hold more than the memory of this machine."""

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hff.data.arrays import Array
from hff.data.memory import available_memory, in_bytes
from hff.errors import UserError

DEFLATE_RATIO = 1100
"""Deflate cannot compress better than 1032:1, so an array that claims more is damaged."""

SUSPICIOUS_RATIO = 200
"""Data compresses worse than this. Small arrays of constants may compress better; large ones are refused."""

SUSPICIOUS_SIZE = 2**30


class _Unusable(Exception):
    """The reason why a member of the file cannot be read, as part of a sentence."""


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, Array]:
    """The arrays of these names that the file holds.

    Sizes are checked before anything is decompressed: all arrays together may need at most half of the
    available memory, and each must have exactly the size that its own header claims. Pickles are not read.
    """
    if not path.exists():
        raise UserError(f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            wanted = {name: members[name] for name in names if name in members}
            _check_sizes(path, wanted)
            return {name: _array(archive, name, member, path) for name, member in wanted.items()}
    except UserError:
        raise
    except Exception as error:  # a damaged file can raise any exception of zipfile, zlib, lzma and NumPy
        reason = f" ({error})" if isinstance(error, _Unusable) else ""
        raise UserError(
            f"{path} cannot be read as an .npz file of plain arrays{reason}; save it with numpy.savez."
        ) from None


def _check_sizes(path: Path, members: dict[str, zipfile.ZipInfo]) -> None:
    """Refuses arrays that claim to be larger than the file or the memory can hold."""
    length = path.stat().st_size
    for name, member in members.items():
        stored, claimed = member.compress_size, member.file_size
        ratio = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}.get(member.compress_type)
        if stored > length or (ratio and claimed > ratio * stored + 100):
            raise _Unusable(
                f"{name} claims to hold {in_bytes(claimed)}, which is more than the file can hold"
            )
        if claimed > SUSPICIOUS_SIZE and claimed > SUSPICIOUS_RATIO * stored:
            raise _Unusable(
                f"{name} would grow from {in_bytes(stored)} to {in_bytes(claimed)} when it is unpacked"
            )
    total, memory = sum(member.file_size for member in members.values()), available_memory()
    if total > memory // 2:
        raise UserError(
            f"The arrays in {path} need {in_bytes(total)}, more than half of the {in_bytes(memory)} of "
            "available memory; save fewer examples, or smaller numbers such as uint8 or float32."
        )


def _array(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo, path: Path) -> Array:
    with archive.open(member) as file:
        shape, dtype = _header(file)
        if dtype.hasobject:
            kind = "astype(str)" if not name.startswith("x") else "astype(float)"
            raise UserError(
                f"{name} in {path} is an array of Python objects, which only a pickle can store; "
                f"save it with {name}.{kind}."
            )
        held = member.file_size - file.tell()
        if math.prod(shape) * dtype.itemsize != held:
            raise _Unusable(f"{name} should hold {math.prod(shape) * dtype.itemsize} bytes and holds {held}")
    with archive.open(member) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        # The checksum of the member is compared at its end.
        file.read()
    return array


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type of an array, before its content is read."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise _Unusable(f"version {version[0]}.{version[1]} of the array format is unknown")
    shape, _, dtype = readers[version](file)
    if any(length < 0 for length in shape):
        raise _Unusable("an array has a negative shape")
    return shape, dtype
