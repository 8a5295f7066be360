"""The contract of a label encoding: a way to write a label into an input."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from hff.errors import UserError
from hff.networks import Shape


class LabelEncoding(nn.Module, ABC):
    """A way to write a label into an input.

    Attributes:
        out_shape: shape of an input with its label, without the batch.
        classes: number of labels.
    """

    def __init__(self, out_shape: Shape, classes: int) -> None:
        super().__init__()
        self.out_shape = out_shape
        self.classes = classes

    @abstractmethod
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Inputs [B, *in_shape] with labels [B] written into them -> [B, *out_shape]."""

    @abstractmethod
    def neutral(self, x: Tensor) -> Tensor:
        """Inputs [B, *in_shape] with a label that favours no class -> [B, *out_shape]."""


class AdditiveEncoding(LabelEncoding):
    """base(x) + patterns()[y]: a part that all labels share, and a pattern for each class.

    So the product of a linear first layer is computed once for all candidate labels.
    """

    @abstractmethod
    def base(self, x: Tensor) -> Tensor:
        """What does not depend on the label: [B, *in_shape] -> [B, *out_shape]."""

    @abstractmethod
    def patterns(self) -> Tensor:
        """What each label adds [C, *out_shape]."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.base(x) + self.patterns()[y]

    def neutral(self, x: Tensor) -> Tensor:
        return self.base(x) + self.patterns().mean(0)


def image_shape(in_shape: Shape, encoding: str) -> tuple[int, int, int]:
    """Channels, height and width; anything but an image is refused in the name of the encoding."""
    if len(in_shape) != 3:
        raise UserError(
            f"{encoding} write labels into images [channels, height, width], but the input has the shape "
            f"{list(in_shape)}: take one-hot labels or class codes instead."
        )
    channels, height, width = in_shape
    return channels, height, width


def check_intensity(intensity: float) -> float:
    """The intensity itself; one that would erase or invert the label is refused."""
    if intensity <= 0:
        raise UserError(f"The intensity of a label must be greater than 0, not {intensity}.")
    return intensity
