"""Checkpoints: one safetensors file, its header a JSON text; written whole or not at all."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hff.errors import UserError


def write_atomically(path: Path, content: str) -> None:
    """Replaces a text file in one step: a reader, or a crash, sees the old text or the new one."""
    partial = path.with_name(path.name + ".partial")
    with _cleaned(partial):
        with partial.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)


def save(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Writes tensors and plain state beside the old checkpoint, then puts the new one in its place."""
    partial = path.with_name(path.name + ".partial")
    with _cleaned(partial):
        try:
            save_file(
                {name: t.detach().contiguous() for name, t in tensors.items()},
                partial,
                {"state": json.dumps(state)},
            )
        except SafetensorError as error:
            raise OSError(
                f"{path} could not be written ({error}); the last checkpoint is safe, so mend it and resume."
            ) from error
        # The library writes for its owner alone; whoever may read the folder may read the checkpoint.
        partial.chmod(path.parent.stat().st_mode & 0o666)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint; nothing in the file is executed."""
    try:
        with safe_open(path, "pt") as file:
            state = json.loads((file.metadata() or {})["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(
            f"There is no checkpoint at {path}: the run was stopped before the first one."
        ) from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"The checkpoint {path} is damaged ({error}); train again.") from None


@contextlib.contextmanager
def _cleaned(partial: Path) -> Any:
    """Leaves no partial file behind when writing fails, as on a full disk."""
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
