"""The networks published with the other methods. The method adds the classifier."""

from dataclasses import replace
from typing import Literal

from hff.errors import UserError
from hff.networks.affine import Activation, AffineRow, Norm, Pool
from hff.networks.network import register
from hff.networks.tables import AVERAGING, HALVING, check_positive, cnn, convolutions, scaled

TRIFECTA = {
    "small": ((128, 128, 256, 256, 256, 512), {0, 2, 5}),
    "large": ((64, 128, 128, 128, 128, 256, 256, 256, 256, 512, 512, 512), {1, 5, 9}),
}


@register
def trifecta(
    classes: int, *, size: Literal["small", "large"] = "small", width_factor: float = 1.0
) -> list[AffineRow]:
    """The Trifecta (Dooms et al. 2023): convolutions without bias, each with batch norm on its input.

    Args:
        size: small has 6 convolutions, large has 12.
        width_factor: factor of all widths, for small experiments.
    """
    row = AffineRow("conv", 0, bias=False, norm="batch", norm_at="input")
    return scaled(convolutions(row, *TRIFECTA[size]), width_factor)


@register
def channelwise(
    classes: int,
    *,
    channels: tuple[int, ...] = (20, 80, 240, 480),
    groups: int | tuple[int, ...] | None = None,
) -> list[AffineRow]:
    """Channel-wise competition (Papachristodoulou et al. 2024): pairs of a shared and a grouped convolution.

    Args:
        channels: output channels of each convolution; every second one is grouped and pooled.
        groups: number of groups of the grouped convolutions, one for each pair or one for all; none means the
            number of classes.
    """
    pairs = (len(check_positive("channels", channels)) + 1) // 2
    everywhere = classes if groups is None else groups
    of_pair = everywhere if isinstance(everywhere, tuple) else (everywhere,) * pairs
    if len(check_positive("groups", of_pair)) != pairs:
        raise UserError(
            f"groups has {len(of_pair)} values, but there are {pairs} pairs in channels; give one value for "
            f"each pair, or one for all."
        )
    for i, width in enumerate(channels):
        if width % of_pair[i // 2]:
            raise UserError(
                f"{width} channels are not divisible by {of_pair[i // 2]} groups; change one of the numbers."
            )
    grouped = range(1, len(channels), 2)
    rows = convolutions(
        AffineRow("conv", 0, norm="batch", norm_at="output", norm_eps=1e-4), channels, grouped
    )
    return [replace(row, groups=of_pair[i // 2] if i in grouped else 1) for i, row in enumerate(rows)]


@register
def simcnn(
    classes: int,
    *,
    widths: tuple[int, ...] = (256, 256, 512, 1024, 1024),
    downsample_at: tuple[int, ...] = (2, 3),
    norm: Norm = "none",
) -> list[AffineRow]:
    """SimCNN (Belilovsky et al. 2019): 3x3 convolutions with invertible downsampling instead of pooling.

    The defaults are the network for linear auxiliary classifiers (k = 1).

    Args:
        widths: output channels of each convolution.
        downsample_at: indices (from 0) of the convolutions that first move 2x2 patches into channels.
        norm: normalization before the activation; the paper uses none for k = 1 and batch otherwise.
    """
    depth = len(check_positive("widths", widths))
    for i in downsample_at:
        if not 0 <= i < depth:
            raise UserError(f"downsample_at contains {i}, but the layers are numbered 0 to {depth - 1}.")
    return [
        AffineRow("conv", width, norm=norm, downsample=2 if i in downsample_at else 1)
        for i, width in enumerate(widths)
    ]


@register
def vgg8b(
    classes: int,
    *,
    activation: Activation = "leaky_relu",
    dropout: float = 0.2,
    width_factor: float = 1.0,
) -> list[AffineRow]:
    """VGG8B of local error signals (Nøkland and Eidnes 2019): 6 convolutions, 1024 units, batch norm.

    Args:
        activation: activation function; the paper uses leaky_relu with a similarity loss, and relu otherwise.
        dropout: dropout probability of the output of every layer.
        width_factor: factor of all widths, for small experiments.
    """
    rows = convolutions(AffineRow("conv", 0), (128, 256, 256, 512, 512, 512), {1, 3, 4, 5})
    return _local_errors(rows, activation, dropout, width_factor)


@register
def vgg11b(
    classes: int,
    *,
    activation: Activation = "leaky_relu",
    dropout: float = 0.2,
    width_factor: float = 1.0,
) -> list[AffineRow]:
    """VGG11B of local error signals (Nøkland and Eidnes 2019): 9 convolutions, 1024 units, batch norm.

    Args:
        activation: activation function; the paper uses leaky_relu with a similarity loss, and relu otherwise.
        dropout: dropout probability of the output of every layer.
        width_factor: factor of all widths, for small experiments.
    """
    rows = convolutions(AffineRow("conv", 0), (128, 128, 128, 256, 256, 512, 512, 512, 512), {3, 5, 7, 8})
    return _local_errors(rows, activation, dropout, width_factor)


def _local_errors(rows: list[AffineRow], activation: str, dropout: float, factor: float) -> list[AffineRow]:
    return [
        replace(row, activation=activation, norm="batch", dropout=dropout)
        for row in scaled([*rows, AffineRow("linear", 1024)], factor)
    ]


@register
def cnn_ff(classes: int, *, channels: tuple[int, ...] = (128, 128, 128), kernel: int = 7) -> list[AffineRow]:
    """Forward-Forward convolutions (Scodellaro et al. 2025): large kernels, layer norm, no pooling.

    Args:
        channels: output channels of each convolution.
        kernel: side of the square kernels; the padding preserves the size of the map.
    """
    return cnn(classes, channels=channels, kernel=kernel, pool=1, norm="layer")


def _unpadded(width: int, kernel: int = 3, pool: Pool | None = None) -> AffineRow:
    return AffineRow("conv", width, kernel=kernel, padding=0, pool=pool)


DLL = {
    "mnist": [_unpadded(32, 5, HALVING), _unpadded(64, 3, HALVING), _unpadded(16), AffineRow("linear", 200)],
    "fashion_mnist": [
        _unpadded(64, 5, HALVING),
        _unpadded(128, 3, AVERAGING),
        _unpadded(64),
        AffineRow("linear", 128),
    ],
    "cifar10": [
        AffineRow("conv", 64, pool=HALVING),
        _unpadded(128, 3, HALVING),
        _unpadded(64, 3, AVERAGING),
        AffineRow("linear", 256),
    ],
    "cifar100": [
        _unpadded(64),
        _unpadded(64, 3, HALVING),
        _unpadded(128, 3, HALVING),
        _unpadded(64, 3, AVERAGING),
        AffineRow("linear", 1024),
    ],
}


@register
def dll_cnn(
    classes: int,
    *,
    like: Literal["mnist", "fashion_mnist", "cifar10", "cifar100"] = "cifar10",
    width_factor: float = 1.0,
) -> list[AffineRow]:
    """Convolutional networks of Dendritic Localized Learning (Lv et al. 2025): tanh, no bias, no norm.

    Args:
        like: which network of the paper; it has one for each data set.
        width_factor: factor of all widths, for small experiments.
    """
    return [replace(row, activation="tanh", bias=False) for row in scaled(DLL[like], width_factor)]


@register
def noprop(classes: int, *, dropout: float = 0.2, width_factor: float = 1.0) -> list[AffineRow]:
    """The image branch of NoProp (Li et al. 2025): three convolutions and 256 units with batch norm.

    Args:
        dropout: dropout probability after each convolution.
        width_factor: factor of all widths, for small experiments.
    """
    rows = convolutions(AffineRow("conv", 0, dropout=dropout), (32, 64, 128), {0, 2})
    return scaled([*rows, AffineRow("linear", 256, activation="identity", norm="batch")], width_factor)
