"""CNN-FF's Fourier label: a plane wave for each class, blended into the whole image."""

import math
from itertools import product

import torch
from torch import Tensor

from hff.errors import UserError
from hff.modules.labels.encoding import AdditiveEncoding, image_shape
from hff.networks import Shape

Wave = tuple[int, int, int]
"""Number of periods across the image, angle and phase; both angles in degrees."""

FIRST: tuple[Wave, ...] = (
    *((1, angle, 0) for angle in (0, 45, 90, 135)),
    *((2, angle, 0) for angle in (0, 45, 90)),
    *((3, angle, 0) for angle in (0, 45, 90)),
)
"""Waves of the first ten classes."""

FURTHER: tuple[Wave, ...] = tuple(
    wave for wave in product(range(1, 13), range(0, 180, 15), (0, 90)) if wave not in FIRST
)
"""Candidates for further classes. Two waves that differ by a quarter of a period are uncorrelated."""


class PlaneWaves(AdditiveEncoding):
    """(1 - K) x + K T_y, with a plane wave T_c [H, W] for each class, the same in every channel.

    The share K is only meaningful if x and T have the same range. In the original both are in [0, 1]. Inputs
    are standardized here, so each wave is scaled to mean 0 and standard deviation 1 over the pixels.

    Args:
        intensity: K, the share of the wave.
    """

    waves: Tensor

    def __init__(self, in_shape: Shape, classes: int, intensity: float = 0.35) -> None:
        channels, height, width = image_shape(in_shape, "Plane waves")
        if not 0 < intensity <= 1:
            raise UserError(f"The intensity of plane waves must lie between 0 and 1, not {intensity}.")
        super().__init__((channels, height, width), classes)
        self.intensity = intensity
        # Stored in the checkpoint, so that rounding on another machine cannot select other waves.
        self.register_buffer("waves", _choose(classes, height, width).to(torch.get_default_dtype()))

    def base(self, x: Tensor) -> Tensor:
        return (1 - self.intensity) * x

    def patterns(self) -> Tensor:
        return (self.intensity * self.waves).unsqueeze(1).expand(-1, *self.out_shape)


def _choose(classes: int, height: int, width: int) -> Tensor:
    """Standardized waves [C, H, W]: the first ten as listed, then always the one least like the others."""
    waves = _standardized(FIRST[:classes], height, width)
    if classes > len(FIRST):
        # Waves with a period below two pixels would look like slower ones (aliasing).
        visible = [wave for wave in FURTHER if 2 * wave[0] <= min(height, width)]
        waves = torch.cat([waves, _standardized(visible, height, width)])
    vectors = waves.flatten(1)
    # Round, so that every machine takes the first of several equally good waves.
    likeness = (vectors @ vectors.T / vectors.shape[1]).abs().round(decimals=6).fill_diagonal_(1)
    flat = ~vectors.any(1)
    likeness[flat] = likeness[:, flat] = 1
    chosen = list(range(min(classes, len(FIRST))))
    nearest = likeness[:, chosen].amax(1)
    while len(chosen) < min(classes, len(waves)):
        chosen.append(int(nearest.argmin()))
        nearest = torch.maximum(nearest, likeness[:, chosen[-1]])
    alike = likeness[chosen][:, chosen].fill_diagonal_(0).max() > 0.99
    if len(chosen) < classes or alike:
        raise UserError(
            f"Images of {height} x {width} pixels are too small for {classes} different plane waves: "
            "use larger images or another label encoding."
        )
    return waves[chosen]


def _standardized(table: tuple[Wave, ...] | list[Wave], height: int, width: int) -> Tensor:
    """Waves of the table, with mean 0 and standard deviation 1 over the pixels [len(table), H, W]."""
    periods, angle, phase = torch.tensor(table, dtype=torch.float64).view(-1, 3, 1, 1).unbind(1)
    angle, phase = torch.deg2rad(angle), torch.deg2rad(phase)
    # Use the centers of the pixels, so that whole periods fill the image without repeating an end.
    down = ((torch.arange(height, dtype=torch.float64) + 0.5) / height).view(-1, 1)
    across = (torch.arange(width, dtype=torch.float64) + 0.5) / width
    waves = torch.sin(2 * math.pi * periods * (across * angle.cos() + down * angle.sin()) + phase)
    waves = waves - waves.mean(dim=(1, 2), keepdim=True)
    deviation = waves.std(dim=(1, 2), correction=0, keepdim=True)
    # A wave that is zero at every pixel stays 0; dividing would only amplify rounding errors.
    return torch.where(deviation > 1e-6, waves / deviation, torch.zeros_like(waves))
