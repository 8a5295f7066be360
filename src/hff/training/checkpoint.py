"""Checkpoints: one safetensors file with its state as JSON in the header, replaced atomically.

A checksum over all tensors and the state is verified when a checkpoint is loaded.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hff.errors import UserError, shortened
from hff.files import parse_json

OLD_PREFIX, PREFIX = "optimiser/", "optimizer/"
"""Version 0.1.0 wrote the names of the optimizers' tensors in British spelling."""

STATE, STATE_CHECKSUM, CHECKSUM = "state", "state_checksum", "checksum"
"""The keys of the metadata. Version 0.1.0 wrote no checksums."""


class _Damaged(ValueError):
    """The content of a checkpoint does not match its checksum."""


def create_folder(folder: Path) -> None:
    """Creates a folder and its parents. A folder that gets a new one is synced, so no crash undoes it."""
    if not folder.is_dir():
        if not folder.parent.exists():
            create_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def write_atomically(path: Path, content: str) -> None:
    """Replaces a text file in one step: a reader sees the old text or the new one, even after a crash."""
    partial = path.with_name(path.name + ".partial")
    with _removed_on_failure(partial):
        with partial.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)


def save(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Writes tensors and JSON state to a new file, then replaces the old checkpoint with it."""
    partial = path.with_name(path.name + ".partial")
    stored = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    text = json.dumps(state)
    metadata = {STATE: text, STATE_CHECKSUM: _state_checksum(text), CHECKSUM: _checksum(stored, text)}
    with _removed_on_failure(partial):
        try:
            save_file(stored, partial, metadata)
        except SafetensorError as error:
            # safetensors reports a full disk as text such as "I/O error: ... (os error 28)".
            number = re.search(r"os error (\d+)", str(error))
            code = int(number[1]) if number else errno.EIO
            raise OSError(code, os.strerror(code) if number else str(error), str(path)) from error
        # safetensors makes the file readable for its owner only; give it the permissions of the folder.
        partial.chmod(path.parent.stat().st_mode & 0o666)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint. Nothing in the file is executed."""
    with _opened(path) as file:
        text, checksum = _state_text(file)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if checksum is not None and checksum != _checksum(tensors, text):
            raise _Damaged("its checksum does not match its content")
        return {_current_name(name): t for name, t in tensors.items()}, _parsed(text, path)


def read_state(path: Path) -> dict[str, Any]:
    """The state of a checkpoint. Only the header of the file is read, not the tensors."""
    with _opened(path) as file:
        return _parsed(_state_text(file)[0], path)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError:
        raise UserError(
            f"There is no checkpoint at {path}: the run was interrupted before the first one."
        ) from None
    except OSError as error:
        raise UserError(f"The checkpoint {path} cannot be read ({error.strerror or error}).") from None
    except (SafetensorError, LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        # A damaged header can ask for any number format or shape, and torch refuses them in many ways.
        raise UserError(f"The checkpoint {path} is damaged ({shortened(str(error))}); train again.") from None


def _state_text(file: Any) -> tuple[str, str | None]:
    """The state as JSON text, and the checksum of the whole; None for a checkpoint of version 0.1.0."""
    metadata: Mapping[str, str] = file.metadata() or {}
    if set(metadata) == {STATE}:
        return metadata[STATE], None
    if set(metadata) != {STATE, STATE_CHECKSUM, CHECKSUM}:
        raise _Damaged("its header has missing or unknown entries")
    if metadata[STATE_CHECKSUM] != _state_checksum(metadata[STATE]):
        raise _Damaged("its checksum does not match its content")
    return metadata[STATE], metadata[CHECKSUM]


def _parsed(text: str, path: Path) -> dict[str, Any]:
    state = parse_json(text, f"The state in the checkpoint {path}")
    if not isinstance(state, dict):
        raise _Damaged("its state is not a JSON object")
    return state


def _checksum(tensors: Mapping[str, Tensor], state: str) -> str:
    """A hash of the names, types, shapes and bytes of all tensors, and of the state."""
    found = hashlib.sha256(state.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        # A view of the same memory, so nothing is copied; NumPy does not know all types of torch.
        found.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _state_checksum(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()


def _current_name(name: str) -> str:
    return PREFIX + name.removeprefix(OLD_PREFIX) if name.startswith(OLD_PREFIX) else name


@contextlib.contextmanager
def _removed_on_failure(partial: Path) -> Iterator[None]:
    """Removes the partial file if writing fails, for example on a full disk."""
    try:
        yield
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
