"""Checkpoints: one safetensors file with its state as JSON in the header, replaced atomically."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hff.errors import UserError

OLD_PREFIX, PREFIX = "optimiser/", "optimizer/"
"""Version 0.1.0 wrote the names of the optimizers' tensors in British spelling."""


def write_atomically(path: Path, content: str) -> None:
    """Replaces a text file in one step: a reader sees the old text or the new one, even after a crash."""
    partial = path.with_name(path.name + ".partial")
    with _removed_on_failure(partial):
        with partial.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)


def save(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Writes tensors and JSON state to a new file, then replaces the old checkpoint with it."""
    partial = path.with_name(path.name + ".partial")
    with _removed_on_failure(partial):
        try:
            save_file(
                {name: t.detach().contiguous() for name, t in tensors.items()},
                partial,
                {"state": json.dumps(state)},
            )
        except SafetensorError as error:
            raise OSError(
                f"{path} could not be written ({error}); fix the cause and resume from the last checkpoint."
            ) from error
        # safetensors makes the file readable for its owner only; give it the permissions of the folder.
        partial.chmod(path.parent.stat().st_mode & 0o666)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint. Nothing in the file is executed."""
    with _opened(path) as file:
        return {_current_name(name): file.get_tensor(name) for name in file.keys()}, _state(file)  # noqa: SIM118


def read_state(path: Path) -> dict[str, Any]:
    """The state of a checkpoint. Only the header of the file is read, not the tensors."""
    with _opened(path) as file:
        return _state(file)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError:
        raise UserError(
            f"There is no checkpoint at {path}: the run was interrupted before the first one."
        ) from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"The checkpoint {path} is damaged ({error}); train again.") from None


def _state(file: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((file.metadata() or {})["state"])
    return state


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
