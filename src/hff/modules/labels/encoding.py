"""Base classes of label encodings, which write a label into an input."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from hff.errors import UserError
from hff.networks import Shape


class LabelEncoding(nn.Module, ABC):
    """A way to write a label into an input.

    Attributes:
        out_shape: shape of an input with its label, without the batch dimension.
        classes: number of labels.
    """

    def __init__(self, out_shape: Shape, classes: int) -> None:
        super().__init__()
        self.out_shape = out_shape
        self.classes = classes

    @abstractmethod
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Writes labels [B] into inputs [B, *in_shape] -> [B, *out_shape]."""

    @abstractmethod
    def neutral(self, x: Tensor) -> Tensor:
        """Inputs [B, *in_shape] with a label that does not favor any class -> [B, *out_shape]."""


class AdditiveEncoding(LabelEncoding):
    """base(x) + patterns()[y]: a part that all labels share, and a pattern for each class.

    The product of a linear first layer can therefore be computed once for all candidate labels.
    """

    @abstractmethod
    def base(self, x: Tensor) -> Tensor:
        """The part that does not depend on the label: [B, *in_shape] -> [B, *out_shape]."""

    @abstractmethod
    def patterns(self) -> Tensor:
        """The pattern that each label adds [C, *out_shape]."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.base(x) + self.patterns()[y]

    def neutral(self, x: Tensor) -> Tensor:
        return self.base(x) + self.patterns().mean(0)


def image_shape(in_shape: Shape, encoding: str) -> tuple[int, int, int]:
    """Channels, height and width; raises an error that names the encoding if the input is not an image."""
    if len(in_shape) != 3:
        raise UserError(
            f"{encoding} write labels into images [channels, height, width], but the input has the shape "
            f"{list(in_shape)}: use one-hot labels or class codes instead."
        )
    channels, height, width = in_shape
    return channels, height, width


def check_intensity(intensity: float) -> float:
    """Returns the intensity; raises an error if it would erase or invert the label."""
    if intensity <= 0:
        raise UserError(f"The intensity of a label must be greater than 0, not {intensity}.")
    return intensity
