"""Downloading one file: an interrupted download is resumed, and the checksum is verified."""

import errno
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hff.data.fetching.sources import Download
from hff.errors import UserError

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with the name of the file, the bytes downloaded so far, and the total number if it is known."""

CHUNK = 1 << 18
"""The number of bytes to read at a time."""

MAX_BYTES = 32 * 2**30
"""The largest download of a file whose size is not known."""

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})

DISK_ERRORS = FULL_DISK | {errno.EACCES, errno.EPERM, errno.EROFS}
"""Trying another address does not help against these. Network errors have another number or none."""


def download(
    item: Download,
    folder: Path,
    on_progress: DownloadProgress | None = None,
    *,
    timeout: float = 30.0,
    rounds: int = 3,
    pause: float = 1.0,
) -> Path:
    """Downloads a file from the first address that serves the right content.

    Incomplete content is kept in a file named *.part, so that a later attempt, another address or another
    process can resume it. A file gets its final name only after its checksum was verified.

    Args:
        item: the file to download. More bytes than its size, or than `MAX_BYTES`, are not accepted.
        folder: the folder to put it into. It is created if it does not exist.
        on_progress: called after every chunk.
        timeout: the number of seconds without data after which an address is given up.
        rounds: how often each address is tried.
        pause: the number of seconds between rounds, which grows with each round.

    Returns:
        The path of the file.
    """
    target = folder / item.file
    part = folder / f"{item.file}.part"
    reason = ""
    with writing(folder):
        if target.exists() and checksum(target) == item.md5:
            return target
        for attempt in range(rounds):
            time.sleep(pause * attempt)
            for url in item.urls:
                try:
                    _resume(url, part, item, on_progress, timeout)
                except _TooLong as error:
                    part.unlink(missing_ok=True)
                    reason = f"{url} {error}"
                    continue
                except (http.client.HTTPException, OSError) as error:
                    if getattr(error, "errno", None) in DISK_ERRORS:
                        raise
                    reason = f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}"
                    continue
                if checksum(part) == item.md5:
                    part.replace(target)
                    return target
                part.unlink()
                reason = f"{url} served a file with the wrong checksum, which was deleted"
    raise UserError(
        f"{item.file} could not be downloaded ({reason}); try again later, or put it into {folder}."
    )


def checksum(path: Path) -> str:
    """The MD5 checksum in hexadecimal, as published for these files. It detects damage, not an attack."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


class _TooLong(Exception):
    """A server sends more than the file can have."""


def _resume(
    url: str, part: Path, item: Download, on_progress: DownloadProgress | None, timeout: float
) -> None:
    """Completes the partial file to the length that the server announces, or raises an OSError.

    A server that announces or sends more bytes than the file has is cut off.
    """
    limit = MAX_BYTES if item.size is None else item.size
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "hff"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        # The partial file is complete or too long; the checksum shows which.
        return
    with response:
        if not _starts_at(response, done):
            done = 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        if total is not None and total > limit:
            raise _TooLong(f"offers {total} bytes, more than the {limit} bytes of the file")
        with part.open("r+b" if done else "wb") as file:
            file.seek(done)
            # read1 returns what has arrived, so that all of it is kept if the connection breaks.
            while chunk := response.read1(CHUNK):
                if done + len(chunk) > limit:
                    raise _TooLong(f"sends more than the {limit} bytes of the file")
                file.write(chunk)
                done += len(chunk)
                if on_progress:
                    on_progress(item.file, done, total)
    if total is not None and done < total:
        raise OSError(f"the connection broke after {done} of {total} bytes")


def _starts_at(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether the response starts at the requested byte; some servers ignore it and send the whole file."""
    sent = response.headers.get("Content-Range", "")
    return response.status == http.HTTPStatus.PARTIAL_CONTENT and sent.startswith(f"bytes {start}-")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Creates a folder to write into, and turns disk errors into errors for the user."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise UserError(f"The disk is full; free some space for {folder} and try again.") from None
        reason = error.strerror or error
        raise UserError(f"{folder} cannot be written to ({reason}); choose another folder.") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lets only one process at a time download into a folder, on systems that have file locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Some network drives do not support locks. Then two processes may damage a partial file, which the
        # checksum detects.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
