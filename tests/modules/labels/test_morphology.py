"""Morphological operators against results worked out by hand, and their general properties."""

from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.errors import UserError
from hff.modules.labels import Morphology
from hff.modules.labels.morphology import (
    CROSS,
    HORIZONTAL,
    OPERATORS,
    SQUARE,
    VERTICAL,
    Element,
    black_hat,
    closing,
    dilation,
    erosion,
    gradient,
    opening,
    top_hat,
)


def image(*rows: str) -> Tensor:
    """A picture [1, 1, H, W] from rows of digits."""
    return torch.tensor([[[[float(digit) for digit in row] for row in rows]]])


DARK = image(*["00000"] * 5)
POINT = image("00000", "00000", "00900", "00000", "00000")
BLOCK = image("00000", "03330", "03330", "03330", "00000")
HOLE = image("55555", "55555", "55255", "55555", "55555")

GROWN: list[tuple[Element, Tensor]] = [
    (SQUARE, image("00000", "09990", "09990", "09990", "00000")),
    (CROSS, image("00000", "00900", "09990", "00900", "00000")),
    (HORIZONTAL, image("00000", "00000", "99999", "00000", "00000")),
    (VERTICAL, image(*["00900"] * 5)),
]


@pytest.mark.parametrize(("element", "grown"), GROWN)
def test_a_bright_point_grows_to_the_element_and_is_eroded_away(element: Element, grown: Tensor) -> None:
    # Add a dark margin, so that the border of the image has no effect.
    point, grown, dark = (F.pad(picture, (2, 2, 2, 2)) for picture in (POINT, grown, DARK))
    assert torch.equal(dilation(point, element), grown)
    assert torch.equal(erosion(point, element), dark)
    assert torch.equal(opening(point, element), dark)
    assert torch.equal(closing(point, element), point)
    assert torch.equal(gradient(point, element), grown)
    assert torch.equal(top_hat(point, element), point)
    assert torch.equal(black_hat(point, element), dark)


def test_pixels_outside_the_image_do_not_erode_it() -> None:
    # Dilation makes the whole row bright, and no dark pixel outside erodes it again.
    assert torch.equal(closing(POINT, HORIZONTAL), image("00000", "00000", "99999", "00000", "00000"))


def test_a_block_as_large_as_the_element_survives_its_opening() -> None:
    assert torch.equal(erosion(BLOCK, SQUARE), image("00000", "00000", "00300", "00000", "00000"))
    assert torch.equal(dilation(BLOCK, SQUARE), image(*["33333"] * 5))
    assert torch.equal(opening(BLOCK, SQUARE), BLOCK)
    assert torch.equal(gradient(BLOCK, SQUARE), image("33333", "33333", "33033", "33333", "33333"))
    assert torch.equal(erosion(BLOCK, CROSS), image("00000", "00000", "00300", "00000", "00000"))
    # A cross at the center does not reach the corners of the block, so they are the top-hat.
    assert torch.equal(top_hat(BLOCK, CROSS), image("00000", "03030", "00000", "03030", "00000"))


def test_a_dark_hole_is_filled_by_the_closing() -> None:
    assert torch.equal(closing(HOLE, SQUARE), image(*["55555"] * 5))
    assert torch.equal(black_hat(HOLE, SQUARE), image("00000", "00000", "00300", "00000", "00000"))
    assert torch.equal(erosion(HOLE, HORIZONTAL), image("55555", "55555", "22222", "55555", "55555"))


@pytest.mark.parametrize("element", [SQUARE, HORIZONTAL, VERTICAL, CROSS])
def test_general_properties(element: Element) -> None:
    # Negative images, because the border must not add zeros.
    x = torch.randn(3, 2, 7, 6) - 5
    assert (erosion(x, element) <= opening(x, element)).all()
    assert (opening(x, element) <= x).all()
    assert (x <= closing(x, element)).all()
    assert (closing(x, element) <= dilation(x, element)).all()
    assert torch.equal(opening(opening(x, element), element), opening(x, element))
    assert torch.equal(closing(closing(x, element), element), closing(x, element))


def test_operators_are_all_different() -> None:
    assert len(OPERATORS) >= 20
    x = torch.randn(1, 1, 8, 8)
    for one, other in combinations([operator(x) for operator in OPERATORS], 2):
        assert (one - other).abs().max() > 0.1


def test_each_sample_is_transformed_by_the_operator_of_its_label() -> None:
    x = torch.cat([POINT, BLOCK, POINT, HOLE])
    labeled = Morphology((1, 5, 5), 10)(x, torch.tensor([2, 1, 0, 4]))
    expected = [dilation(POINT, SQUARE), erosion(BLOCK, SQUARE), POINT, closing(HOLE, SQUARE)]
    assert torch.equal(labeled, torch.cat(expected))


def test_neutral_by_hand() -> None:
    # Identity, erosion and dilation of a point: (9 + 0 + 9) / 3 at the point, 9 / 3 in the ring around it.
    neutral = Morphology((1, 5, 5), 3).neutral(POINT)
    assert torch.equal(neutral, image("00000", "03330", "03630", "03330", "00000"))


def test_channels_do_not_mix() -> None:
    x = torch.cat([POINT, DARK], dim=1)
    labeled = Morphology((2, 5, 5), 29)(x, torch.tensor([2]))
    assert torch.equal(labeled, torch.cat([dilation(POINT, SQUARE), DARK], dim=1))


def test_more_classes_than_operators_raise_an_error() -> None:
    with pytest.raises(UserError, match="29 morphological operators, too few for 30 classes"):
        Morphology((1, 8, 8), 30)
