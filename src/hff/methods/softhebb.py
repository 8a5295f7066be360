"""SoftHebb: units share each input by a softmax; the winner moves towards it, the others away."""

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
"""What each block has if nothing is said, by its place; a block beyond their number has the last.

Those of convolutions are the authors' presets. Those of linear maps are for inputs of unit variance; theirs
(12, 0.045, 0.2 and 35) are for pixels from 0 to 1, whose vectors are about a third as long.
"""


@register
class SoftHebb(HebbianMethod):
    """Units compete softly for every patch and come to rest at unit length, one by one; labels come last.

    Every block reads its input normalised without gain and bias: over the batch for a convolution, over the
    sample for a linear map. Its activation is the triangle, to the power that the row names.

    Args:
        temperature: t, the inverse temperature of the softmax, for each block or for all; none is the
            preset's.
        rate: eta0, the learning rate of a unit that is 1 away from unit length, for each block or for all;
            none is the preset's, 0 keeps the weights as drawn.
        rate_power: q, the power of that distance in the rate of a unit, for each block or for all; none is
            the preset's.
        radius: length of the weights of a unit at the start, for each block or for all; none is the preset's.
        anti_hebbian: whether all units but the winner move away from the input by their share, or towards it.
        block_batch_size: samples in a batch while the blocks learn.
        dropout: share of the features that is dropped while a linear read-out learns.
    """

    name = "softhebb"
    info = MethodInfo(
        title="SoftHebb",
        paper="Journe, Garcia Rodriguez, Guo and Moraitis 2023, Hebbian Deep Learning Without Feedback "
        "(arXiv 2209.11883)",
        passes="1",
        needs_negatives=False,
        gradient_reach=0,
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
            # The control: only the norm of what the block reads learns.
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
        """How far the weights of a unit are from unit length in the mean, for each block; 0 is all done."""
        return {
            f"distance from unit length of block {layer}": float(
                distances(self.affine_block(layer).affine.weight).mean()
            )
            for layer in range(len(self.blocks))
        }


def distances(weight: Tensor) -> Tensor:
    """How far the length of each unit's weights is from 1: [K, ...] -> [K]."""
    away: Tensor = torch.linalg.vector_norm(weight.detach().flatten(1), dim=1) - 1
    return away.abs()


def _adapted(row: AffineRow) -> AffineRow:
    # A batch has a channel's value at every position, but of a pixel too few, and of one at the rim none.
    norm: Norm = "batch_plain" if row.kind == "conv" else "layer_plain"
    return replace(row, norm=norm, norm_at="input", activation="triangle")


def _by_block(name: str, given: PerBlock | None, kinds: Sequence[str]) -> list[float]:
    """A number for each block, which must not be negative: as given, or the preset's."""
    if given is None:
        presets = [PRESETS[kind][name] for kind in kinds]
        return [preset[min(layer, len(preset) - 1)] for layer, preset in enumerate(presets)]
    values = given if isinstance(given, tuple) else (given,) * len(kinds)
    if len(values) != len(kinds) or min(values) < 0:
        raise UserError(
            f"{name} must be one number for all {len(kinds)} blocks or one for each, none of them negative, "
            f"not {', '.join(f'{value:g}' for value in values)}."
        )
    return list(values)
