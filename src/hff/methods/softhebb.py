"""SoftHebb: units compete by a softmax; the winner moves toward the input, the others move away."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hff.errors import UserError, require
from hff.methods.families.hebbian import (
    HebbianMethod,
    ReadOutRule,
    by_unit,
    patch_sums,
    unit_sums,
    without_biases,
)
from hff.methods.method import MethodInfo, register
from hff.networks import AffineRow, Network, Norm

PerBlock = float | tuple[float, ...]
PRESETS: dict[str, dict[str, tuple[float, ...]]] = {
    "conv": {
        "temperature": (1.0, 0.65, 0.25),
        "rate": (0.08, 0.005, 0.01),
        "rate_power": (0.5,),
        "radius": (25.0,),
    },
    "linear": {"temperature": (4.0,), "rate": (0.2,), "rate_power": (0.2,), "radius": (35.0,)},
}
"""Defaults for each block by its position; blocks beyond the last position use the last value.

For convolutions, these are the authors' presets. For linear maps, these are for inputs of unit variance; the
authors' presets (12, 0.045, 0.2 and 35) are for pixels from 0 to 1, whose vectors are about a third as long.
"""


@register
class SoftHebb(HebbianMethod):
    """Units compete softly for every patch; a unit stops learning when its weights reach unit length.

    The input of every block is normalized without gain and bias: over the batch for a convolution, over the
    sample for a linear map. The activation is the triangle, raised to the power of the row.

    Args:
        temperature: inverse temperature of the softmax (t), for each block or for all; none is the preset.
        rate: learning rate of a unit at distance 1 from unit length (eta0), for each block or for all; none
            is the preset, 0 keeps the initial weights.
        rate_power: exponent of that distance in the learning rate of a unit (q), for each block or for all;
            none is the preset.
        radius: initial length of the weights of a unit, for each block or for all; none is the preset.
        anti_hebbian: whether all units but the winner move away from the input instead of toward it.
        block_batch_size: batch size while the blocks learn.
        dropout: dropout probability of the features while a linear read-out learns.
    """

    name = "softhebb"
    info = MethodInfo(
        title="SoftHebb",
        paper="Journe, Garcia Rodriguez, Guo and Moraitis 2023, Hebbian Deep Learning Without Feedback "
        "(arXiv 2209.11883)",
        data_parallel=False,
        autocast=False,
        learning_rate=3e-3,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        temperature: PerBlock | None = None,
        rate: PerBlock | None = None,
        rate_power: PerBlock | None = None,
        radius: PerBlock | None = None,
        anti_hebbian: bool = True,
        block_batch_size: int = 10,
        dropout: float = 0.5,
        read_out_rule: ReadOutRule = "linear",
        block_epochs: int | float | None = 0.5,
        **options: Any,
    ) -> None:
        require(block_batch_size >= 1, f"block_batch_size must be at least 1, not {block_batch_size}.")
        table = without_biases(network, classes)
        super().__init__(
            replace(table, rows=tuple(_adapted(row) for row in table.affine_rows)),
            classes,
            dropout,
            read_out_rule=read_out_rule,
            block_epochs=block_epochs,
            **options,
        )
        self.block_batch_size = block_batch_size
        self.anti_hebbian = anti_hebbian
        kinds = [row.kind for row in table.rows]
        self.temperatures = _by_block("temperature", temperature, kinds)
        self.rates = _by_block("rate", rate, kinds)
        self.rate_powers = _by_block("rate_power", rate_power, kinds)
        for layer, length in enumerate(_by_block("radius", radius, kinds)):
            weight = self.affine_block(layer).affine.weight
            nn.init.normal_(weight, std=length / weight[0].numel() ** 0.5)

    def change(self, layer: int, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        block, weight = self.affine_block(layer), self.affine_block(layer).affine.weight
        away = distances(weight)
        if self.rates[layer] == 0:
            # A control: only the statistics of the input norm are learned.
            return torch.zeros_like(weight), away.mean()
        shares = torch.softmax(self.temperatures[layer] * u, 1)
        if self.anti_hebbian:
            winner = u.argmax(1, keepdim=True)
            shares = (-shares).scatter_(1, winner, shares.gather(1, winner))
        change = patch_sums(block, shares, x) - by_unit(unit_sums(shares * u), weight) * weight
        change /= change.abs().max() + 1e-30
        rates = self.rates[layer] * (away + 1e-10) ** self.rate_powers[layer]
        return by_unit(rates, weight) * change, away.mean()

    def diagnostics(self) -> dict[str, float]:
        """The mean distance of the units' weights from unit length, for each block; 0 means converged."""
        return {
            f"distance from unit length of block {layer}": float(
                distances(self.affine_block(layer).affine.weight).mean()
            )
            for layer in range(len(self.blocks))
        }


def distances(weight: Tensor) -> Tensor:
    """The distance of the length of each unit's weights from 1: [K, ...] -> [K]."""
    away: Tensor = torch.linalg.vector_norm(weight.detach().flatten(1), dim=1) - 1
    return away.abs()


def _adapted(row: AffineRow) -> AffineRow:
    # A batch has too few values of one pixel for batch norm, and pixels at the border may be constant.
    norm: Norm = "batch_plain" if row.kind == "conv" else "layer_plain"
    return replace(row, norm=norm, norm_at="input", activation="triangle")


def _by_block(name: str, given: PerBlock | None, kinds: Sequence[str]) -> list[float]:
    """A nonnegative number for each block: as given, or the preset."""
    if given is None:
        presets = [PRESETS[kind][name] for kind in kinds]
        return [preset[min(layer, len(preset) - 1)] for layer, preset in enumerate(presets)]
    values = given if isinstance(given, tuple) else (given,) * len(kinds)
    if len(values) != len(kinds) or min(values) < 0:
        raise UserError(
            f"{name} must be one number for all {len(kinds)} blocks or one for each, and not negative, "
            f"but is {', '.join(f'{value:g}' for value in values)}."
        )
    return list(values)
