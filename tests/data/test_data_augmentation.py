import pytest
import torch

from hff.data.augmentation import Augmentation, center
from hff.errors import UserError


def one_by_one(x: torch.Tensor, draws: torch.Tensor, crop: int, flip: bool) -> torch.Tensor:
    """The definition of the augmentation, one image at a time."""
    _, channels, height, width = x.shape
    results = []
    for image, draw in zip(x, draws, strict=True):
        padded = torch.zeros(channels, height + 2 * crop, width + 2 * crop, dtype=x.dtype)
        padded[:, crop : crop + height, crop : crop + width] = image
        top, left = int(draw[0] * (2 * crop + 1)), int(draw[1] * (2 * crop + 1))
        window = padded[:, top : top + height, left : left + width]
        results.append(window.flip(2) if flip and draw[2] < 0.5 else window)
    return torch.stack(results)


@pytest.mark.parametrize(("crop", "flip"), [(4, True), (4, False), (0, True), (1, True), (0, False)])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 5, 9)])
def test_a_batch_equals_one_image_at_a_time(crop: int, flip: bool, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (16, *shape), dtype=torch.uint8, generator=generator)
    draws = torch.rand(16, 3, generator=generator)
    expected = one_by_one(x, draws, crop, flip)
    result = Augmentation(crop, flip)(x, draws, shape)
    assert result.dtype == torch.uint8
    assert torch.equal(result, expected)


def test_all_positions_of_the_window_are_drawn() -> None:
    x = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3).expand(2000, 1, 3, 3)
    draws = torch.rand(2000, 3, generator=torch.Generator().manual_seed(0))
    windows = Augmentation(crop=1)(x, draws, (1, 3, 3))
    corners = {tuple(window.flatten().tolist()) for window in windows}
    assert len(corners) == 9
    assert max(windows.flatten().tolist()) == 9


def test_an_image_with_a_margin_is_not_padded() -> None:
    x = torch.randint(1, 256, (64, 3, 10, 12), dtype=torch.uint8)
    draws = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
    windows = Augmentation(crop=4)(x, draws, (3, 8, 8))
    assert windows.shape == (64, 3, 8, 8)
    assert int(windows.min()) > 0
    top, left = int(draws[5, 0] * 3), int(draws[5, 1] * 5)
    assert torch.equal(windows[5], x[5, :, top : top + 8, left : left + 8])


def test_without_augmentation_the_center_is_used() -> None:
    x = torch.arange(36, dtype=torch.uint8).view(1, 1, 6, 6)
    assert torch.equal(Augmentation.none()(x, torch.zeros(1, 3), (1, 4, 4)), x[:, :, 1:5, 1:5])
    assert torch.equal(Augmentation(flip=True)(x, torch.ones(1, 3) * 0.9, (1, 4, 4)), x[:, :, 1:5, 1:5])
    table = torch.rand(3, 5)
    assert center(table, (5,)) is table


def test_augmentation_by_name() -> None:
    default = Augmentation(2, True)
    assert Augmentation.named("auto", default) == default
    assert Augmentation.named("none", default) == Augmentation(0, False)
    assert Augmentation.named("crop", default) == Augmentation(4, False)
    assert Augmentation.named("flip", default) == Augmentation(0, True)
    assert Augmentation.named("crop_flip", default) == Augmentation(4, True)
    with pytest.raises(UserError, match="did you mean 'crop_flip'"):
        Augmentation.named("crop_flop", default)
