"""The networks of the paper (mlp, cnn, alexnet, vgg11, vgg16), and functions that build tables."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from hff.errors import UserError
from hff.networks.affine import Activation, AffineRow, Norm, Place, Pool
from hff.networks.network import register

HALVING = Pool(2, 2)
AVERAGING = Pool(2, 2, kind="average")


@register
def mlp(
    classes: int,
    *,
    widths: tuple[int, ...] = (2000, 2000, 2000),
    activation: Activation = "relu",
    norm: Norm = "none",
    norm_at: Place = "preactivation",
    dropout: float = 0.0,
    bias: bool = True,
) -> list[AffineRow]:
    """Fully connected layers, without an output layer.

    Args:
        widths: number of units of each layer.
        activation: activation function of every layer.
        norm: normalization of every layer; the paper uses none.
        norm_at: what is normalized: the input of a layer, its preactivation, or its output.
        dropout: dropout probability of the output of every layer.
        bias: whether the affine maps have a bias.
    """
    return [
        AffineRow(
            "linear", width, activation=activation, norm=norm, norm_at=norm_at, dropout=dropout, bias=bias
        )
        for width in check_positive("widths", widths)
    ]


@register
def cnn(
    classes: int,
    *,
    channels: tuple[int, ...] = (32, 64, 128),
    kernel: int = 3,
    pool: int = 2,
    activation: Activation = "relu",
    norm: Norm = "none",
    norm_at: Place = "preactivation",
    dropout: float = 0.0,
    bias: bool = True,
) -> list[AffineRow]:
    """A small convolutional network: each layer is a convolution, an activation and max-pooling.

    Args:
        channels: output channels of each layer (1-32-64 for MNIST, 3-32-64-128 for CIFAR in the paper).
        kernel: side of the square kernels; the padding preserves the size of the map.
        pool: size and stride of the max-pooling after each convolution; 1 means no pooling.
        activation: activation function of every layer.
        norm: normalization of every layer; the paper uses none.
        norm_at: what is normalized: the input of a layer, its preactivation, or its output.
        dropout: dropout probability of the output of every layer.
        bias: whether the convolutions have a bias.
    """
    row = AffineRow(
        "conv",
        0,
        kernel=kernel,
        padding=kernel // 2,
        pool=Pool(pool, pool) if pool > 1 else None,
        activation=activation,
        norm=norm,
        norm_at=norm_at,
        dropout=dropout,
        bias=bias,
    )
    depth = len(channels)
    return [
        replace(row, width=width, aux_channels=min(512, 32 * 2 ** (depth - 1 - i)))
        for i, width in enumerate(check_positive("channels", channels))
    ]


@register
def alexnet(
    classes: int, *, activation: Activation = "relu", norm: Norm = "none", width_factor: float = 1.0
) -> list[AffineRow]:
    """AlexNet as in the paper's table: 5 convolutions, two layers of 4096 units and one of C units.

    Args:
        activation: activation function of every layer.
        norm: normalization before the activation; the paper uses none.
        width_factor: factor of all widths except the last, for small experiments.
    """
    pool = Pool(3, 2)
    rows = [
        AffineRow("conv", 64, kernel=11, stride=4, padding=2, pool=pool, aux_channels=256),
        AffineRow("conv", 192, kernel=5, padding=2, pool=pool, aux_channels=128),
        AffineRow("conv", 384, aux_channels=64),
        AffineRow("conv", 256, aux_channels=32),
        AffineRow("conv", 256, pool=pool, aux_channels=32),
    ]
    return _with_head(rows, (4096, 4096), classes, activation, norm, width_factor)


@register
def vgg11(
    classes: int,
    *,
    activation: Activation = "relu",
    norm: Norm = "none",
    hidden: int = 512,
    width_factor: float = 1.0,
) -> list[AffineRow]:
    """VGG11 as in the paper's table: 8 convolutions, two layers of 512 units and one of C units.

    Args:
        activation: activation function of every layer.
        norm: normalization before the activation; the paper uses none.
        hidden: number of units of the two fully connected layers before the last one.
        width_factor: factor of all widths except the last, for small experiments.
    """
    widths = (64, 128, 256, 256, 512, 512, 512, 512)
    aux = (512, 512, 512, 512, 256, 256, 128, 64)
    rows = _vgg(widths, aux, pooled={0, 1, 3, 5, 7})
    return _with_head(rows, (hidden, hidden), classes, activation, norm, width_factor)


@register
def vgg16(
    classes: int,
    *,
    activation: Activation = "relu",
    norm: Norm = "none",
    hidden: int = 4096,
    width_factor: float = 1.0,
) -> list[AffineRow]:
    """VGG16 as in the paper's table: 13 convolutions, two layers of 4096 units and one of C units.

    Args:
        activation: activation function of every layer.
        norm: normalization before the activation; the paper uses none.
        hidden: number of units of the two fully connected layers before the last one.
        width_factor: factor of all widths except the last, for small experiments.
    """
    widths = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    aux = (512, 512, 512, 512, 512, 512, 256, 256, 256, 128, 128, 64, 64)
    rows = _vgg(widths, aux, pooled={1, 3, 6, 9, 12})
    return _with_head(rows, (hidden, hidden), classes, activation, norm, width_factor)


def convolutions(row: AffineRow, widths: Sequence[int], pooled: Collection[int]) -> list[AffineRow]:
    """One copy of `row` for each width. The rows with an index in `pooled` halve the map by max-pooling."""
    return [
        replace(row, width=width, pool=HALVING if i in pooled else None) for i, width in enumerate(widths)
    ]


def scaled(rows: Sequence[AffineRow], factor: float) -> list[AffineRow]:
    """The rows with all widths multiplied by the factor."""
    if factor <= 0:
        raise UserError(f"width_factor must be above 0, not {factor:g}.")
    return [replace(row, width=max(1, round(row.width * factor))) for row in rows]


def check_positive(name: str, widths: Sequence[int]) -> Sequence[int]:
    """Returns the widths, or raises an error that names the option if one of them is not positive."""
    if not widths or min(widths) < 1:
        raise UserError(f"{name} must be one or more positive numbers, not {list(widths)}.")
    return widths


def _vgg(widths: Sequence[int], aux: Sequence[int], pooled: Collection[int]) -> list[AffineRow]:
    rows = convolutions(AffineRow("conv", 0), widths, pooled)
    return [replace(row, aux_channels=channels) for row, channels in zip(rows, aux, strict=True)]


def _with_head(
    rows: list[AffineRow], hidden: Sequence[int], classes: int, activation: str, norm: Norm, factor: float
) -> list[AffineRow]:
    """Adds the fully connected rows, then sets the activation and the norm of all rows."""
    below = scaled(
        [*rows, *(AffineRow("linear", width) for width in check_positive("hidden", hidden))], factor
    )
    return [replace(row, activation=activation, norm=norm) for row in [*below, AffineRow("linear", classes)]]
