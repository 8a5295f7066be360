"""Labels appended to the input: as a one-hot vector, a fixed random code, or a learned image channel."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff.errors import UserError
from hff.modules.labels.encoding import AdditiveEncoding, check_intensity, image_shape
from hff.networks import Shape


class _Concatenated(AdditiveEncoding):
    """The flattened input followed by scale * codes[y]: [D + length]."""

    codes: Tensor

    def __init__(self, in_shape: Shape, codes: Tensor, scale: float, *, persistent: bool) -> None:
        classes, length = codes.shape
        features = math.prod(in_shape)
        super().__init__((features + length,), classes)
        self.features = features
        self.length = length
        self.scale = check_intensity(scale)
        self.register_buffer("codes", codes, persistent=persistent)

    def base(self, x: Tensor) -> Tensor:
        return F.pad(x.flatten(1), (0, self.length))

    def patterns(self) -> Tensor:
        return F.pad(self.scale * self.codes, (self.features, 0))


class Appended(_Concatenated):
    """A one-hot label after the flattened input, [D + C]: for tabular data, to keep all features.

    Args:
        intensity: value of the hot entry; the others are 0.
    """

    def __init__(self, in_shape: Shape, classes: int, intensity: float) -> None:
        super().__init__(in_shape, torch.eye(classes), intensity, persistent=False)


class ClassCodes(_Concatenated):
    """SymBa's intrinsic class patterns: a random binary code per class after the flattened input.

    The shape is [D + length]. The codes are drawn once from the global generator and never trained. They are
    saved in the checkpoint.

    Args:
        density: share of ones.
        scale: value of a one.
    """

    def __init__(
        self, in_shape: Shape, classes: int, length: int = 100, density: float = 0.5, scale: float = 1.0
    ) -> None:
        super().__init__(in_shape, _distinct_codes(classes, length, density), scale, persistent=True)


class LabelChannel(AdditiveEncoding):
    """Trifecta's label: a learned picture per class as one more channel of the image, [channels + 1, H, W].

    It is initialized with a standard normal distribution, which is the scale of standardized pixels.
    """

    def __init__(self, in_shape: Shape, classes: int) -> None:
        channels, height, width = image_shape(in_shape, "Label channels")
        super().__init__((channels + 1, height, width), classes)
        self.channels = channels
        self.table = nn.Parameter(torch.randn(classes, height * width))

    def base(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, 0, 0, 1))

    def patterns(self) -> Tensor:
        pictures = self.table.view(self.classes, 1, *self.out_shape[1:])
        return F.pad(pictures, (0, 0, 0, 0, self.channels, 0))


def _distinct_codes(classes: int, length: int, density: float) -> Tensor:
    """Random binary codes [C, length], drawn again until no two classes have the same code."""
    codes = torch.rand(classes, length) < density
    for _ in range(1000):
        same = (codes.unsqueeze(0) == codes.unsqueeze(1)).all(dim=2)
        repeated = same.tril(diagonal=-1).any(dim=1)
        if not repeated.any():
            return codes.float()
        codes[repeated] = torch.rand(int(repeated.sum()), length) < density
    raise UserError(
        f"No {classes} different codes of length {length} and density {density} were found: "
        "choose longer codes, or a density closer to 0.5."
    )
