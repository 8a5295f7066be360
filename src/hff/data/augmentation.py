"""Random crops and horizontal flips, drawn per sample and applied to a whole batch at once."""

from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from hff.errors import unknown

AugmentationName = Literal["auto", "none", "crop", "flip", "crop_flip"]

DRAWS = 3
"""Random numbers per sample: the top of the window, its left side, and whether it is flipped."""


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of training images. Tables are not augmented."""

    crop: int = 0
    """The number of zero pixels added on each side before a random window of the original size is cut out. An
    image stored larger than the window is not padded: any value but 0 then means a random window in it."""
    flip: bool = False
    """Whether images are flipped horizontally with probability 1/2."""

    @classmethod
    def none(cls) -> Self:
        return cls()

    @classmethod
    def named(cls, choice: str, default: "Augmentation") -> "Augmentation":
        """The augmentation for a value of the option `augment`, where "auto" is the default."""
        choices = {
            "auto": default,
            "none": cls(),
            "crop": cls(crop=4),
            "flip": cls(flip=True),
            "crop_flip": cls(crop=4, flip=True),
        }
        if choice not in choices:
            raise unknown("augmentation", choice, choices)
        return choices[choice]

    def __call__(self, x: Tensor, draws: Tensor | None, window: tuple[int, ...]) -> Tensor:
        """Cuts a window out of each image.

        Args:
            x: stored images [B, C, H, W], at least as large as the window.
            draws: uniform numbers [B, 3], or None for the center window.
            window: the shape of one window, [C, h, w].

        Returns:
            The windows [B, C, h, w], in the dtype of x.
        """
        if draws is None or self == Augmentation():
            return center(x, window)
        height, width = window[1:]
        if self.crop and x.shape[2:] == (height, width):
            x = pad(x, (self.crop,) * 4)
        room = torch.tensor([x.shape[2] - height + 1, x.shape[3] - width + 1])
        corner = (draws[:, :2] * room).long() if self.crop else (room // 2).expand(len(x), 2)
        rows = corner[:, :1] + torch.arange(height)
        columns = corner[:, 1:] + torch.arange(width)
        if self.flip:
            columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
        pixel = rows[:, :, None] * x.shape[3] + columns[:, None, :]
        pixel = pixel.reshape(len(x), 1, -1).expand(-1, x.shape[1], -1)
        return x.flatten(2).gather(2, pixel).view(len(x), x.shape[1], height, width)


def center(x: Tensor, window: tuple[int, ...]) -> Tensor:
    """The center [B, C, h, w] of images [B, C, H, W]. The rows of a table are returned unchanged."""
    if len(window) != 3:
        return x
    height, width = window[1:]
    top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    return x[:, :, top : top + height, left : left + width]
