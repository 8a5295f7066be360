"""The convolutional networks of direct feedback alignment. The method adds the output layer."""

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
    """Networks of direct feedback alignment (Nøkland 2016; for MNIST, Crafton et al. 2019).

    Args:
        like: cifar10 has three 5x5 convolutions, each with max-pooling, and two layers of 2048 units; mnist
            has two 3x3 convolutions, the second with max-pooling, and a layer of 128 units.
        activation: activation function of every layer; Nøkland uses tanh, Crafton et al. relu on CIFAR-10.
        dropout: dropout probability of the fully connected layers; Crafton et al. use 0.25.
        pool_padding: padding of the 3x3 max-pooling with stride 2: with 0, maps of side 32 shrink to 15, 7
            and 3 (Nøkland); with 1, to 16, 8 and 4 (Crafton et al.).
        width_factor: factor of all widths, for small experiments.
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
