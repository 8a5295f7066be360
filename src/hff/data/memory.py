"""The memory that data may take."""

import os
from pathlib import Path

DEFAULT_MEMORY = 16 * 2**30
"""The memory to assume if the operating system does not say how much is available."""


def available_memory() -> int:
    """The bytes of memory that a new program can use now."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError, IndexError):
        return DEFAULT_MEMORY


def in_bytes(count: int) -> str:
    """A number of bytes as it is shown in messages, such as "1.5 GB"."""
    return f"{count / 1e9:,.1f} GB" if count >= 10**8 else f"{count / 1e6:.1f} MB"
