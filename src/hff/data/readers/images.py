"""Reading image files with Pillow: rotation, channels and size."""

from __future__ import annotations

import math
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
            image.load()
            return _upright(_eight_bits(image, path)).convert(mode)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from None


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
        raise UserError(f"{path} holds {wrong} pixels that are NaN or infinite; replace or remove it.")
    largest = float(values.max(initial=0))
    if image.mode == "F" and largest <= 1:
        values = values * 255
    elif image.mode != "F" and (largest > 255 or image.mode != "I"):
        values = values / 257
    return Image.fromarray(np.rint(values).clip(0, 255).astype(np.uint8))


def common_form(files: list[str]) -> tuple[int, tuple[int, int] | None]:
    """The number of channels for all images, and their size [H, W] if all have the same."""
    from PIL import Image

    gray, sizes = True, set()
    for path in files:
        try:
            with Image.open(path) as image:
                gray = gray and image.mode in GRAY_MODES
                sizes.add(image.size if _turned(image) else image.size[::-1])
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise _unreadable(path, error) from None
    return 1 if gray else 3, sizes.pop() if len(sizes) == 1 else None


def _unreadable(path: Path | str, error: Exception) -> UserError:
    from PIL import UnidentifiedImageError

    # Pillow's message for an unknown format would repeat the path.
    unidentified = isinstance(error, UnidentifiedImageError)
    reason = "unknown format" if unidentified else str(error) or type(error).__name__
    return UserError(f"{path} cannot be read as an image ({reason}); replace or remove it.")
