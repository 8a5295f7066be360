"""Verifying files against their published checksums, once for each file."""

import json
import os
from contextlib import suppress
from pathlib import Path

from hff.data.fetching.download import checksum
from hff.data.fetching.sources import Source

MEMORY = "verified.json"
"""The name of the file that remembers which files were verified."""

MAX_MEMORY = 10**6
"""A longer file is ignored and replaced."""


def damaged_files(source: Source, folder: Path, memory: Path) -> list[Path]:
    """The files of a data set whose content is not the published one.

    If none of the files is a published one, files of other sizes are read as the user's own, and the reader
    checks that they are complete. A file that was verified is not read again until its size or its time of
    change is another one.

    Args:
        source: the files of the data set, with their checksums.
        folder: the folder that holds them.
        memory: the folder of the file that remembers what was verified.
    """
    verified = _remembered(memory)
    wrong, other_sizes, added, any_published = [], [], {}, False
    names = {file.name for file in source.files_in(folder) or ()} | set(source.checksums)
    for file in sorted(folder / name for name in names):
        published = source.published(file.name)
        if published is None or not file.is_file():
            continue
        state = file.stat()
        if state.st_size != published.size:
            other_sizes.append(file)
            continue
        key, mark = str(file.absolute()), f"{published.md5} {state.st_size} {state.st_mtime_ns}"
        if verified.get(key) == mark:
            any_published = True
        elif checksum(file) == published.md5:
            added[key], any_published = mark, True
        else:
            wrong.append(file)
    if added:
        # Another process may have verified other files in the meantime.
        _remember(memory, _remembered(memory) | added)
    return sorted(wrong + other_sizes) if any_published else wrong


def _remembered(memory: Path) -> dict[str, str]:
    """The verified files. A damaged memory is empty."""
    file = memory / MEMORY
    try:
        content = json.loads(file.read_text()) if file.stat().st_size <= MAX_MEMORY else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _remember(memory: Path, verified: dict[str, str]) -> None:
    """Writes the memory. If that is impossible, the files are verified again the next time."""
    part = memory / f"{MEMORY}.{os.getpid()}.part"
    with suppress(OSError):
        memory.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(verified))
        part.replace(memory / MEMORY)
