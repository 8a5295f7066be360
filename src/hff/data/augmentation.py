"""Random crops and mirror images, drawn per sample and applied to a whole batch of bytes at once."""

from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from hff.errors import unknown

AugmentationName = Literal["auto", "none", "crop", "flip", "crop_flip"]

DRAWS = 3
"""Random numbers per sample: the window's top, its left, and whether it is mirrored."""


@dataclass(frozen=True)
class Augmentation:
    """How a training image is varied; a table is never varied."""

    crop: int = 0
    """Pixels of zeros around the image before a window of its own size is cut out at random; an image that is
    stored larger than the window needs no zeros: there any crop but 0 means a window anywhere in it."""
    flip: bool = False
    """Whether every second image is mirrored left to right."""

    @classmethod
    def none(cls) -> Self:
        return cls()

    @classmethod
    def named(cls, choice: str, default: "Augmentation") -> "Augmentation":
        """What the option `augment` asks for, given the default of the data set."""
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
        """Windows of the images.

        Args:
            x: stored images [B, C, H, W], at least as large as the window.
            draws: uniform numbers [B, 3], or None for the centre as it is.
            window: the shape of one result, [C, h, w].

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
        place = rows[:, :, None] * x.shape[3] + columns[:, None, :]
        place = place.reshape(len(x), 1, -1).expand(-1, x.shape[1], -1)
        return x.flatten(2).gather(2, place).view(len(x), x.shape[1], height, width)


def center(x: Tensor, window: tuple[int, ...]) -> Tensor:
    """The middle [B, C, h, w] of stored images [B, C, H, W]; rows of a table as they are."""
    if len(window) != 3:
        return x
    height, width = window[1:]
    top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    return x[:, :, top : top + height, left : left + width]
