"""Small data for trying out the commands of the docs. Nothing is downloaded."""

import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np

from hff.errors import UserError, unknown

LABELS = {"eight.png": "8", "three.png": "3", "two-unclear.png": "2"}
"""The digits that the labeled images show."""

PHOTOS = {"temple": 0, "flower": 1}
"""The classes of the photographs, with their places in `load_sample_images`."""

PHOTOS_PER_CLASS = 40


def write_samples(name: str = "scans", folder: Path | str = ".") -> Path:
    """Writes one of the `SAMPLES` into a folder, under its name, and returns its path."""
    if name not in SAMPLES:
        raise unknown("sample", name, SAMPLES)
    path = Path(folder) / name
    if path.exists():
        raise UserError(f"{path} already exists; remove it, or work in another folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    SAMPLES[name](path)
    return path


def _scans(path: Path) -> None:
    """Four digits of 64x64 pixels. Three are bright on a dark background, and one is dark on white."""
    with resources.as_file(resources.files(__name__) / "scans") as scans:
        shutil.copytree(scans, path)


def _labeled(path: Path) -> None:
    """Three of the scans, each in the folder of its class."""
    for file, label in LABELS.items():
        (path / label).mkdir(parents=True)
        content = (resources.files(__name__) / "scans" / file).read_bytes()
        (path / label / file).write_bytes(content)


def _photos(path: Path) -> None:
    """Crops of two photographs that are part of scikit-learn, as JPEG files of different sizes."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    numbers = np.random.default_rng(0)
    photographs = load_sample_images().images
    for label, place in PHOTOS.items():
        (path / label).mkdir(parents=True)
        for i in range(PHOTOS_PER_CLASS):
            height, width = (int(side) for side in numbers.integers(100, 200, 2))
            rows, columns = photographs[place].shape[:2]
            top, left = int(numbers.integers(rows - height)), int(numbers.integers(columns - width))
            crop = photographs[place][top : top + height, left : left + width]
            Image.fromarray(crop).save(path / label / f"{i:02}.jpg")


def _wine(path: Path) -> None:
    """The table of 178 wines of scikit-learn, with the names of the classes as labels."""
    from sklearn.datasets import load_wine

    wine = load_wine()
    np.savez(path, x=wine.data, y=wine.target_names[wine.target])


SAMPLES: dict[str, Callable[[Path], None]] = {
    "scans": _scans,
    "labeled": _labeled,
    "photos": _photos,
    "wine.npz": _wine,
}
"""The samples by name: the function writes one to a path."""
