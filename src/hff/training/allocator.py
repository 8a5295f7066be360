"""Keeps freed memory in the process, so that training does not ask the system for it in every step."""

import ctypes
import os
import sys
from functools import cache

VARIABLE = "HFF_KEEP_MEMORY"
"""Set to 0 to leave the allocator of the C library unchanged."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
NEVER = 2**31 - 1
LARGEST = 2**25
"""Tensors of up to 32 MB are kept. Larger ones would leave gaps that take as much memory as the tensors."""


@cache
def keep_freed_memory() -> bool:
    """Tells the C library to keep freed memory, once for the whole process. Returns whether it does.

    By default, glibc returns the memory of large tensors to the system after each operation, and the system
    clears it page by page when it is requested again. For a small CNN this takes a quarter of the CPU time.
    The memory of the process then stays at its peak. Systems without glibc are left unchanged, and so are
    processes that set the allocator up by `MALLOC_*` variables.
    """
    if sys.platform != "linux" or os.environ.get(VARIABLE) == "0":
        return False
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")) for name in os.environ):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018
        mallopt = library.mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, NEVER))
