"""The networks published with energy-based methods. The method adds the output layer of C units."""

from dataclasses import replace
from typing import Literal

from hff.networks.affine import Activation, AffineRow
from hff.networks.network import register
from hff.networks.tables import HALVING, convolutions, scaled

DEEP = (128, 256, 512, 512)
EQUILIBRIUM = {
    "mnist": convolutions(AffineRow("conv", 0, kernel=5, padding=0), (32, 64), {0, 1}),
    "cifar10": [
        *convolutions(AffineRow("conv", 0), DEEP[:3], {0, 1, 2}),
        AffineRow("conv", DEEP[3], padding=0, pool=HALVING),
    ],
}


@register
def equilibrium_cnn(
    classes: int, *, like: Literal["mnist", "cifar10"] = "cifar10", width_factor: float = 1.0
) -> list[AffineRow]:
    """Convolutional networks of equilibrium propagation (Laborieux et al. 2021), max-pooling in every layer.

    Args:
        like: which network of the paper: mnist has two 5x5 convolutions, cifar10 four 3x3 convolutions.
        width_factor: factor of all widths, for small experiments.
    """
    return scaled(EQUILIBRIUM[like], width_factor)


@register
def vgg5(classes: int, *, activation: Activation = "gelu", width_factor: float = 1.0) -> list[AffineRow]:
    """VGG5 of predictive coding (Pinchetti et al. 2024): four convolutions, each with 2x2 max-pooling.

    Args:
        activation: activation function of every layer; the paper uses gelu on CIFAR-10.
        width_factor: factor of all widths, for small experiments.
    """
    rows = convolutions(AffineRow("conv", 0), DEEP, range(len(DEEP)))
    return [replace(row, activation=activation) for row in scaled(rows, width_factor)]
