"""Cases for the worker: a file of a folder is damaged, something reads the folder, the folder is restored."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mutations import Mutation, mutate
from worker import Case

Read = Callable[[Path], Any]
"""Reads a folder with a damaged file in it."""


def damaged(
    folder: Path,
    file: str,
    reads: Sequence[Read],
    count: int,
    mutations: tuple[Mutation, ...],
    *,
    inner: bytes | None = None,
    wrap: Callable[[bytes], bytes] = bytes,
) -> Iterator[Case]:
    """Damages a file `count` times, with the seeds from 0.

    Args:
        folder: the folder, which is restored after every case.
        file: the name of the file.
        reads: each case uses the next of these functions.
        count: the number of cases.
        mutations: the kinds of damage.
        inner: what is damaged, if it is not the whole file: for example the content of an archive.
        wrap: makes the file from the damaged inner content.
    """
    whole = _content(folder)
    for seed in range(count):
        kind, changed = mutate(whole[file] if inner is None else inner, seed, mutations)
        (folder / file).write_bytes(wrap(changed))
        read = reads[seed % len(reads)]
        yield f"{file}, seed {seed} ({kind}, {read.__name__})", partial(read, folder)
        _restore(folder, whole)


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _restore(folder: Path, whole: dict[str, bytes]) -> None:
    found = _content(folder)
    for name in found.keys() - whole.keys():
        (folder / name).unlink()
    for name, content in whole.items():
        if found.get(name) != content:
            (folder / name).write_bytes(content)
