"""FF's label: a one-hot vector written over the first entries of the image."""

import math

import torch
from torch import Tensor

from hff.errors import UserError
from hff.modules.labels.concatenated import Appended
from hff.modules.labels.encoding import AdditiveEncoding, check_intensity
from hff.networks import Shape


class Overlay(AdditiveEncoding):
    """Replaces the first C entries of the flattened input by a one-hot label; the shape stays [*in_shape].

    In an image these are the first pixels of the top row of the first channel, which are usually empty.

    Args:
        intensity: value of the hot entry; the others are 0.
    """

    written: Tensor
    one_hots: Tensor

    def __init__(self, in_shape: Shape, classes: int, intensity: float) -> None:
        super().__init__(in_shape, classes)
        entries = math.prod(in_shape)
        if entries < classes:
            raise UserError(
                f"A one-hot label of {classes} classes does not fit over an input of {entries} entries: "
                "append it to the input instead."
            )
        one_hots = check_intensity(intensity) * torch.eye(classes, entries)
        self.register_buffer("one_hots", one_hots.view(classes, *in_shape), persistent=False)
        written = torch.arange(entries) < classes
        self.register_buffer("written", written.view(in_shape), persistent=False)

    def base(self, x: Tensor) -> Tensor:
        return x.masked_fill(self.written, 0)

    def patterns(self) -> Tensor:
        return self.one_hots


def one_hot_encoding(in_shape: Shape, classes: int, intensity: float) -> AdditiveEncoding:
    """One-hot label: written over images [C, H, W], appended to tabular data [D] to keep all its features."""
    kind = Overlay if len(in_shape) == 3 else Appended
    return kind(in_shape, classes, intensity)
