"""Images that are part of the package, for trying out predictions."""

import shutil
from importlib import resources
from pathlib import Path


def copy_samples(folder: Path | str = "scans") -> Path:
    """Copies the sample scans, which are four digits of 64x64 pixels, to a folder and returns it.

    Three are bright on a dark background, as in the data set digits, and one is dark on white.
    """
    folder = Path(folder)
    with resources.as_file(resources.files(__name__) / "scans") as scans:
        shutil.copytree(scans, folder, dirs_exist_ok=True)
    return folder
