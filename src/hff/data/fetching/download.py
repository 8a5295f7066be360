"""Fetching one file: resumed where it broke off, checked before it gets its name."""

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
"""Called with the file's name, the bytes that are here, and the bytes that there will be if that is known."""

PIECE = 1 << 18

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})

DISK_ERRORS = FULL_DISK | {errno.EACCES, errno.EPERM, errno.EROFS}
"""No other address helps against these; errors of the network come without a number or with another."""


def fetch(
    item: Download,
    folder: Path,
    on_progress: DownloadProgress | None = None,
    *,
    timeout: float = 30.0,
    rounds: int = 3,
    pause: float = 1.0,
) -> Path:
    """The file in the folder, fetched from the first address that gives the right bytes.

    What has arrived is kept under the name *.part, so that another round, another address or another day
    continues it; only a file with the right checksum gets its final name.

    Args:
        item: what to fetch.
        folder: where to put it; made if it is missing.
        on_progress: told of every piece.
        timeout: seconds without a byte after which an address is given up.
        rounds: how often every address is tried.
        pause: seconds between rounds, more after each.
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
                    _continue(url, part, item.file, on_progress, timeout)
                except (http.client.HTTPException, OSError) as error:
                    if getattr(error, "errno", None) in DISK_ERRORS:
                        raise
                    reason = f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}"
                    continue
                if checksum(part) == item.md5:
                    part.replace(target)
                    return target
                part.unlink()
                reason = f"{url} gave a file with a wrong checksum, which was deleted"
    raise UserError(f"{item.file} could not be fetched ({reason}); try again later, or put it into {folder}.")


def checksum(path: Path) -> str:
    """MD5 in hexadecimal: what the publishers of these files give, against damage rather than malice."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _continue(url: str, part: Path, name: str, on_progress: DownloadProgress | None, timeout: float) -> None:
    """Brings the part to the length that the server announces; raises OSError if it breaks off before."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "hff"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        # Nothing lies behind what is here: it is whole, or longer than the file; the checksum will tell.
        return
    with response:
        if not _continues_at(response, have):
            have = 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        with part.open("r+b" if have else "wb") as file:
            file.seek(have)
            # read1 hands over what has come, so that nothing of it is lost if the rest does not.
            while piece := response.read1(PIECE):
                file.write(piece)
                have += len(piece)
                if on_progress:
                    on_progress(name, have, total)
    if total is not None and have < total:
        raise OSError(f"broke off after {have} of {total} bytes")


def _continues_at(response: http.client.HTTPResponse, have: int) -> bool:
    """Whether the server kept to the range that was asked for; one that ignores it sends everything."""
    place = response.headers.get("Content-Range", "")
    return response.status == http.HTTPStatus.PARTIAL_CONTENT and place.startswith(f"bytes {have}-")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """The folder, made if need be; what goes wrong with the disk is said in one sentence."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise UserError(f"The disk is full; make room for {folder} and try again.") from None
        reason = error.strerror or error
        raise UserError(f"{folder} cannot be written to ({reason}); choose another folder.") from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lets one process at a time fetch into a folder, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Some network drives know no locks: at worst two processes spoil a part, and its checksum tells.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
