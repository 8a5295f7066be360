"""The convolutional networks of direct feedback; the output layer belongs to the method."""

from dataclasses import replace
from typing import Literal

from hff.networks.affine import Activation, AffineRow, Pool
from hff.networks.network import register
from hff.networks.tables import scaled


@register
def direct_feedback(
    classes: int,
    *,
    like: Literal["cifar10", "mnist"] = "cifar10",
    activation: Activation = "tanh",
    dropout: float = 0.0,
    pool_padding: Literal[0, 1] = 0,
    width_factor: float = 1.0,
) -> list[AffineRow]:
    """Direct feedback's networks: of 5x5 convolutions (Nøkland 2016), or Crafton et al.'s for MNIST (2019).

    Args:
        like: cifar10 has three 5x5 convolutions, each max-pooled, and two layers of 2048; mnist has two 3x3
            convolutions, of which the second is max-pooled, and a layer of 128.
        activation: nonlinearity of every layer; Nøkland's is tanh, Crafton's relu for CIFAR-10.
        dropout: share of the activities of fully connected layers that is dropped; Crafton's is 0.25.
        pool_padding: of the 3x3 max-pooling of stride 2: 0 takes maps of 32 to 15, 7 and 3 (Nøkland's), 1
            to 16, 8 and 4 (Crafton's).
        width_factor: multiplies every width, for small trials.
    """
    pool = Pool(3, 2, pool_padding)
    if like == "cifar10":
        rows = [AffineRow("conv", width, kernel=5, padding=2, pool=pool) for width in (96, 128, 256)]
        rows += [AffineRow("linear", 2048, dropout=dropout)] * 2
    else:
        rows = [
            AffineRow("conv", 32),
            AffineRow("conv", 64, pool=pool),
            AffineRow("linear", 128, dropout=dropout),
        ]
    return [replace(row, activation=activation) for row in scaled(rows, width_factor)]
