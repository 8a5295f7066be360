"""Images that are part of the package, for trying out predictions."""

import shutil
from importlib import resources
from pathlib import Path

from hff.errors import UserError


def copy_samples(folder: Path | str = "scans") -> Path:
    """Copies the sample scans, which are four digits of 64x64 pixels, to a folder and returns it.

    Three are bright on a dark background, as in the data set digits; one of them is also there the other way
    round.
    """
    folder = Path(folder)
    if folder.exists():
        raise UserError(f"{folder} exists already; choose another folder.")
    with resources.as_file(resources.files(__name__) / "scans") as scans:
        shutil.copytree(scans, folder)
    return folder
