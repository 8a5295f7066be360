"""Image files: opened, turned upright, brought to the wanted channels and size, by Pillow."""

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
"""Files with another ending, such as a note or a thumbnail index, are not taken for images."""

WIDE_MODES = frozenset({"I", "I;16", "I;16B", "I;16L", "F"})
"""Grey, with more than a byte for each pixel."""

GREY_MODES = frozenset({"1", "L", "LA"}) | WIDE_MODES

ORIENTATION = 274
"""The EXIF tag that says how a camera was held; from 5 on, height and width change places."""


def open_image(path: Path | str, channels: int, size: tuple[int, int], margin: float = 1.0) -> Image:
    """A decoded image, upright, grey (1 channel) or RGB (3).

    A JPEG may come smaller than it is in its file, but not smaller than `size` [H, W] times the margin.
    """
    from PIL import Image

    mode = "L" if channels == 1 else "RGB"
    try:
        with Image.open(path) as image:
            # A large JPEG is decoded at a half, a quarter or an eighth, which saves most of the time; a side
            # may become the other one when the picture is turned upright, hence the larger of the two.
            longest = max(enlarged(size, margin))
            image.draft(mode, (longest, longest))
            image.load()
            return _upright(_eight_bits(image, path)).convert(mode)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from None


def with_margin(image: Image, size: tuple[int, int], margin: float) -> Image:
    """The largest centred window of the form of `size` [H, W], scaled to `size` times `margin`."""
    from PIL import Image, ImageOps

    height, width = enlarged(size, margin)
    if image.size == (width, height):
        return image
    return ImageOps.fit(image, (width, height), method=Image.Resampling.BILINEAR)


def enlarged(size: tuple[int, int], margin: float) -> tuple[int, int]:
    """[H, W] times the margin, in whole pixels."""
    return math.floor(size[0] * margin + 0.5), math.floor(size[1] * margin + 0.5)


def pixels(image: Image) -> Tensor:
    """Bytes [C, H, W] of a grey or RGB image."""
    array = torch.from_numpy(np.array(image, dtype=np.uint8))
    return array[None] if array.ndim == 2 else array.permute(2, 0, 1).contiguous()


def _upright(image: Image) -> Image:
    """As the camera was held; a damaged note about that does not spoil the picture."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # of many kinds, depending on which byte is wrong
        return image


def _turned(image: Image) -> bool:
    """Whether height and width change places when the image is turned upright."""
    # Asked for notes that it does not have, Pillow decodes the whole of a PNG in search of them.
    if "exif" not in image.info:
        return False
    try:
        return int(image.getexif().get(ORIENTATION, 1)) >= 5
    except Exception:
        return False


def _eight_bits(image: Image, path: Path | str) -> Image:
    """Images of 16 bits or of floats brought to bytes; Pillow itself would cut them off at 255."""
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
    """How many channels the images need, and the size [H, W] of all of them if they agree."""
    from PIL import Image

    grey, sizes = True, set()
    for path in files:
        try:
            with Image.open(path) as image:
                grey = grey and image.mode in GREY_MODES
                sizes.add(image.size if _turned(image) else image.size[::-1])
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise _unreadable(path, error) from None
    return 1 if grey else 3, sizes.pop() if len(sizes) == 1 else None


def _unreadable(path: Path | str, error: Exception) -> UserError:
    from PIL import UnidentifiedImageError

    # Pillow's own words for an unknown format would name the file a second time.
    unidentified = isinstance(error, UnidentifiedImageError)
    reason = "no known format" if unidentified else str(error) or type(error).__name__
    return UserError(f"{path} cannot be read as an image ({reason}); replace or remove it.")
