"""A lock on a folder, so that two processes do not write into it at the same time."""

import os
from pathlib import Path
from types import ModuleType
from typing import Self

from hff.errors import UserError
from hff.training.checkpoint import create_folder

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"


class FolderInUse(UserError):
    """Another process is writing to the folder. Unlike other mistakes, this one may pass by itself."""


class FolderLock:
    """Locks a folder while it is entered. The same object can be entered several times.

    The system releases the lock when the process ends, even if it was killed. The lock file itself means
    nothing. Without `fcntl`, which Windows lacks, or on file systems without locks, nothing is locked.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._depth = 0
        self._handle: int | None = None

    def __enter__(self) -> Self:
        if self._depth == 0 and fcntl is not None:
            create_folder(self.folder)
            while not self._acquire():
                continue
        self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._handle is not None:
            # Removed while it is locked: a process that opened it before notices that it is gone.
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None

    @property
    def _path(self) -> Path:
        return self.folder / LOCK

    def _acquire(self) -> bool:
        """Tries to lock the file. Returns whether the locked file is still the one in the folder."""
        assert fcntl is not None
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise FolderInUse(
                f"Another process is writing to {self.folder}; wait until it ends, or stop it."
            ) from None
        except OSError:
            # The file system does not support locks.
            os.close(handle)
            return True
        try:
            current = self._path.stat()
        except FileNotFoundError:
            os.close(handle)
            return False
        if not os.path.samestat(os.fstat(handle), current):
            os.close(handle)
            return False
        self._handle = handle
        return True
