"""CNN-FF's morphological label: the image is transformed by an operator that depends on the class.

No pattern is added that a layer could detect without looking at the object.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from hff.errors import UserError
from hff.modules.labels.encoding import LabelEncoding, image_shape
from hff.networks import Shape

Element = tuple[tuple[int, int], ...]
"""A structuring element: the union of centered rectangles, each with an odd height and width."""

SQUARE: Element = ((3, 3),)
HORIZONTAL: Element = ((1, 5),)
VERTICAL: Element = ((5, 1),)
CROSS: Element = ((1, 3), (3, 1))


def dilation(x: Tensor, element: Element) -> Tensor:
    """Maximum over the element around each pixel of x [B, C, H, W]; pixels outside the image are ignored."""
    widened = [F.max_pool2d(x, size, stride=1, padding=(size[0] // 2, size[1] // 2)) for size in element]
    return torch.stack(widened).amax(0)


def erosion(x: Tensor, element: Element) -> Tensor:
    """Minimum over the element around each pixel."""
    return -dilation(-x, element)


def opening(x: Tensor, element: Element) -> Tensor:
    """Removes bright details smaller than the element."""
    return dilation(erosion(x, element), element)


def closing(x: Tensor, element: Element) -> Tensor:
    """Fills dark details smaller than the element."""
    return erosion(dilation(x, element), element)


def gradient(x: Tensor, element: Element) -> Tensor:
    """Dilation minus erosion: the edges."""
    return dilation(x, element) - erosion(x, element)


def top_hat(x: Tensor, element: Element) -> Tensor:
    """The bright details that the opening removes."""
    return x - opening(x, element)


def black_hat(x: Tensor, element: Element) -> Tensor:
    """The dark details that the closing fills."""
    return closing(x, element) - x


def identity(x: Tensor) -> Tensor:
    return x


OPERATORS: tuple[Callable[[Tensor], Tensor], ...] = (
    identity,
    *(
        partial(operator, element=element)
        for element in (SQUARE, HORIZONTAL, VERTICAL, CROSS)
        for operator in (erosion, dilation, opening, closing, gradient, top_hat, black_hat)
    ),
)
"""One operator for each class, in this order. Each is applied to every channel separately."""


class Morphology(LabelEncoding):
    """OPERATORS[y](x): transforms an image [channels, H, W] by the operator of its label, same shape."""

    def __init__(self, in_shape: Shape, classes: int) -> None:
        super().__init__(image_shape(in_shape, "Morphological operators"), classes)
        if classes > len(OPERATORS):
            raise UserError(
                f"There are {len(OPERATORS)} morphological operators, too few for {classes} classes: "
                "use plane waves instead."
            )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        labeled = torch.empty_like(x)
        for label in y.unique().tolist():
            own = y == label
            labeled[own] = OPERATORS[label](x[own])
        return labeled

    def neutral(self, x: Tensor) -> Tensor:
        """Mean over all labels."""
        total = torch.zeros_like(x)
        for operator in OPERATORS[: self.classes]:
            total = total + operator(x)
        return total / self.classes
