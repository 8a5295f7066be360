"""The tables that Hebbian learning was published with; the read-out at the end belongs to the method."""

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

    The first kernel is 5x5, all others are 3x3; max-pooling over windows that overlap halves the map in all
    layers but the last, which averages.

    Args:
        channels: output channels of each convolution.
        powers: exponent of the triangle activation in each layer.
        width_factor: multiplies every width, for small trials.
    """
    if len(powers) != len(check_positive("channels", channels)):
        raise UserError(
            f"powers names {len(powers)} exponents, but channels names {len(channels)} layers; give one for "
            "each."
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
    """Competitive convolutions (Lagani): four without padding, a layer of 300, batch norm on all outputs.

    Args:
        width_factor: multiplies every width, for small trials.
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
