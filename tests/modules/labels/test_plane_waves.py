"""Plane waves are standardized, and differ from each other for ten classes and for a hundred."""

import math

import pytest
import torch
from torch import Tensor

from hff.errors import UserError
from hff.modules.labels import PlaneWaves


def largest_correlation(encoding: PlaneWaves) -> float:
    flat = encoding.waves.double().flatten(1)
    correlations: Tensor = torch.corrcoef(flat) - torch.eye(len(flat))
    return float(correlations.abs().max())


def test_blend_by_hand() -> None:
    encoding = PlaneWaves((2, 4, 4), 3, intensity=0.25)
    # One period across four pixels, at their centers: sin of 45, 135, 225 and 315 degrees, each of which is
    # +-sqrt(1/2). The mean is already 0 and the deviation is sqrt(1/2), so the wave is +1, +1, -1, -1.
    across = torch.tensor([1.0, 1.0, -1.0, -1.0]).expand(4, 4)
    assert torch.allclose(encoding.waves[0], across, atol=1e-6)
    assert torch.allclose(encoding.waves[2], across.T, atol=1e-6)
    x = torch.full((1, 2, 4, 4), 8.0)
    for channel in encoding(x, torch.tensor([0]))[0]:
        assert torch.allclose(channel, 6 + 0.25 * across, atol=1e-6)


def test_a_slanted_wave_by_hand() -> None:
    # At 45 degrees, one period: pixel (r, c) of n x n has the phase 2 pi (r + c + 1) / n sqrt(1/2).
    wave = PlaneWaves((1, 6, 6), 2).waves[1]
    raw = torch.tensor(
        [[math.sin(2 * math.pi * (r + c + 1) / 6 * math.sqrt(0.5)) for c in range(6)] for r in range(6)]
    )
    assert torch.allclose(wave, (raw - raw.mean()) / raw.std(correction=0), atol=1e-5)


@pytest.mark.parametrize(("shape", "classes"), [((1, 28, 28), 10), ((3, 32, 32), 100), ((1, 8, 8), 10)])
def test_waves_have_the_range_of_standardized_pixels(shape: tuple[int, ...], classes: int) -> None:
    waves = PlaneWaves(shape, classes).waves
    assert torch.allclose(waves.mean(dim=(1, 2)), torch.zeros(classes), atol=1e-6)
    assert torch.allclose(waves.std(dim=(1, 2), correction=0), torch.ones(classes), atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 6, 6), (1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 20, 30)])
def test_ten_waves_are_different(shape: tuple[int, ...]) -> None:
    assert largest_correlation(PlaneWaves(shape, 10)) < 0.4


@pytest.mark.parametrize(("side", "classes"), [(28, 47), (32, 100), (64, 200)])
def test_waves_of_further_classes_are_not_more_similar_than_the_first_ten(side: int, classes: int) -> None:
    ten, more = PlaneWaves((3, side, side), 10), PlaneWaves((3, side, side), classes)
    assert torch.equal(more.waves[:10], ten.waves)
    assert largest_correlation(more) == pytest.approx(largest_correlation(ten), abs=1e-5)


def test_waves_do_not_depend_on_the_seed() -> None:
    torch.manual_seed(1)
    one = PlaneWaves((3, 32, 32), 100).waves
    torch.manual_seed(2)
    assert torch.equal(one, PlaneWaves((3, 32, 32), 100).waves)


@pytest.mark.parametrize(
    ("shape", "classes"),
    [((1, 5, 5), 10), ((1, 2, 2), 10), ((1, 1, 1), 2), ((1, 8, 8), 100), ((1, 32, 32), 999)],
)
def test_images_too_small_for_the_waves_raise_an_error(shape: tuple[int, ...], classes: int) -> None:
    with pytest.raises(UserError, match=f"too small for {classes} different plane waves"):
        PlaneWaves(shape, classes)


@pytest.mark.parametrize("intensity", [0.0, -0.1, 1.1])
def test_an_intensity_outside_0_to_1_raises_an_error(intensity: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        PlaneWaves((1, 8, 8), 3, intensity)
