"""The networks published with Hebbian learning. The method adds the read-out."""

from dataclasses import replace

from hff.errors import UserError
from hff.networks.affine import AffineRow, Pool
from hff.networks.network import register
from hff.networks.tables import AVERAGING, HALVING, check_positive, scaled

OVERLAPPING = Pool(4, 2, padding=1)


@register
def softhebb(
    classes: int,
    *,
    channels: tuple[int, ...] = (96, 384, 1536),
    powers: tuple[float, ...] = (0.7, 1.4, 1.0),
    width_factor: float = 1.0,
) -> list[AffineRow]:
    """SoftHebb (Journe et al. 2023): convolutions of growing width, each with batch norm on its input.

    The first kernel is 5x5, the others are 3x3. Every layer halves the map: by max-pooling with overlapping
    windows, or by average pooling in the last layer.

    Args:
        channels: output channels of each convolution.
        powers: exponent of the triangle activation of each layer.
        width_factor: factor of all widths, for small experiments.
    """
    if len(powers) != len(check_positive("channels", channels)):
        raise UserError(
            f"powers has {len(powers)} values, but there are {len(channels)} layers in channels; give one "
            "for each layer."
        )
    row = AffineRow(
        "conv",
        0,
        bias=False,
        activation="triangle",
        norm="batch_plain",
        norm_at="input",
        pool=OVERLAPPING,
        padding_mode="reflect",
    )
    rows = [replace(row, width=width, power=p) for width, p in zip(channels, powers, strict=True)]
    rows[0] = replace(rows[0], kernel=5, padding=2)
    rows[-1] = replace(rows[-1], pool=AVERAGING)
    return scaled(rows, width_factor)


@register
def hebb_cnn(classes: int, *, width_factor: float = 1.0) -> list[AffineRow]:
    """Competitive network (Lagani): four unpadded convolutions, a layer of 300 units, batch norm on outputs.

    Args:
        width_factor: factor of all widths, for small experiments.
    """
    row = AffineRow("conv", 0, padding=0, bias=False, norm="batch_plain", norm_at="output")
    rows = [
        replace(row, width=96, kernel=5, pool=HALVING),
        replace(row, width=128),
        replace(row, width=192, pool=HALVING),
        replace(row, width=256),
        replace(row, kind="linear", width=300),
    ]
    return scaled(rows, width_factor)
