"""Reading image files with Pillow: rotation, channels and size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hff.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""The suffixes of image files. Other files in an image folder are ignored."""

WIDE_MODES = frozenset({"I", "I;16", "I;16B", "I;16L", "F"})
"""Pillow modes of gray images with more than one byte per pixel."""

GRAY_MODES = frozenset({"1", "L", "LA"}) | WIDE_MODES

ORIENTATION = 274
"""The EXIF tag for the rotation of the camera. From 5 on, height and width are swapped."""


MAX_PIXELS = 64_000_000
"""Larger images are refused before they are decoded. A large JPEG is decoded at a lower resolution, which
counts."""


class BadImage(UserError):
    """An image file that cannot be read."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path} cannot be read as an image ({reason}); replace or remove it.")
        self.path = str(path)
        self.reason = reason


@dataclass
class ImageForms:
    """The channels and sizes of image files."""

    channels: int = 1
    """1 if all images are gray, otherwise 3."""
    sizes: set[tuple[int, int]] = field(default_factory=set)
    """All sizes [H, W]."""
    bad: list[BadImage] = field(default_factory=list)
    """The files that are not images, or are too large."""

    @property
    def common(self) -> tuple[int, int] | None:
        """The size of all images, if it is the same."""
        return next(iter(self.sizes)) if len(self.sizes) == 1 else None

    @property
    def smallest(self) -> tuple[int, int]:
        return min(self.sizes, key=lambda size: (size[0] * size[1], size))

    @property
    def largest(self) -> tuple[int, int]:
        return max(self.sizes, key=lambda size: (size[0] * size[1], size))


def open_image(path: Path | str, channels: int, size: tuple[int, int], margin: float = 1.0) -> Image:
    """A decoded image, upright, gray (1 channel) or RGB (3 channels).

    A large JPEG may be decoded at a lower resolution, but not smaller than `size` [H, W] times the margin.
    """
    from PIL import Image

    mode = "L" if channels == 1 else "RGB"
    try:
        with Image.open(path) as image:
            # Decoding a large JPEG at 1/2, 1/4 or 1/8 of its size saves most of the time. The longer side is
            # used for both because the rotation may swap them.
            longest = max(enlarged(size, margin))
            image.draft(mode, (longest, longest))
            _check_pixels(image, path)
            image.load()
            return _upright(_eight_bits(image, path)).convert(mode)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except UserError:
        raise
    except Exception as error:  # a damaged image can raise any exception
        raise _unreadable(path, error) from None


def _check_pixels(image: Image, path: Path | str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise BadImage(path, f"{width}x{height} pixels are more than {MAX_PIXELS // 10**6} million")


def with_margin(image: Image, size: tuple[int, int], margin: float) -> Image:
    """The largest centered window with the aspect ratio of `size` [H, W], scaled to `size` times `margin`."""
    from PIL import Image, ImageOps

    height, width = enlarged(size, margin)
    if image.size == (width, height):
        return image
    return ImageOps.fit(image, (width, height), method=Image.Resampling.BILINEAR)


def enlarged(size: tuple[int, int], margin: float) -> tuple[int, int]:
    """[H, W] times the margin, rounded to whole pixels."""
    return math.floor(size[0] * margin + 0.5), math.floor(size[1] * margin + 0.5)


def pixels(image: Image) -> Tensor:
    """The bytes [C, H, W] of a gray or RGB image."""
    array = torch.from_numpy(np.array(image, dtype=np.uint8))
    return array[None] if array.ndim == 2 else array.permute(2, 0, 1).contiguous()


def _upright(image: Image) -> Image:
    """The image rotated as its EXIF data says. Damaged EXIF data is ignored."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF data can raise any exception
        return image


def _turned(image: Image) -> bool:
    """Whether the rotation swaps height and width."""
    # If a PNG does not have EXIF data, Pillow decodes the whole file in search of it.
    if "exif" not in image.info:
        return False
    try:
        return int(image.getexif().get(ORIENTATION, 1)) >= 5
    except Exception:
        return False


def _eight_bits(image: Image, path: Path | str) -> Image:
    """Converts an image of 16 bits or floats to bytes. Pillow itself would clip the values at 255."""
    from PIL import Image

    if image.mode not in WIDE_MODES:
        return image
    values = np.asarray(image, dtype=np.float64)
    wrong = int((~np.isfinite(values)).sum())
    if wrong:
        raise BadImage(path, f"it holds {wrong} pixels that are NaN or infinite")
    largest = float(values.max(initial=0))
    if image.mode == "F" and largest <= 1:
        values = values * 255
    elif image.mode != "F" and (largest > 255 or image.mode != "I"):
        values = values / 257
    return Image.fromarray(np.rint(values).clip(0, 255).astype(np.uint8))


def forms_of(files: Iterable[str]) -> ImageForms:
    """The channels and sizes of images, from their headers."""
    from PIL import Image

    found = ImageForms()
    for path in files:
        try:
            with Image.open(path) as image:
                if image.format not in ("JPEG", "MPO"):
                    _check_pixels(image, path)
                if image.mode not in GRAY_MODES:
                    found.channels = 3
                found.sizes.add(image.size if _turned(image) else image.size[::-1])
        except BadImage as error:
            found.bad.append(error)
        except Exception as error:  # a damaged image can raise any exception
            found.bad.append(_unreadable(path, error))
    return found


def _unreadable(path: Path | str, error: Exception) -> BadImage:
    from PIL import Image, UnidentifiedImageError

    # Pillow's message for an unknown format would repeat the path.
    if isinstance(error, UnidentifiedImageError):
        return BadImage(path, "unknown format")
    if isinstance(error, Image.DecompressionBombError):
        return BadImage(path, f"it has more than {MAX_PIXELS // 10**6} million pixels")
    return BadImage(path, str(error) or type(error).__name__)
