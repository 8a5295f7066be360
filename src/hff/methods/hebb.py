"""Hebbian learning: units compete for input patches and move toward those that they win."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import require
from hff.methods.families.hebbian import (
    HebbianMethod,
    by_unit,
    patch_sums,
    unit_sums,
    without_biases,
)
from hff.methods.method import MethodInfo, Stage, register
from hff.networks import Network

TINY = 1e-6
"""A patch no longer than this has no direction."""
CHUNK = 16
"""Number of samples per forward pass when units are initialized; it affects memory only."""


@register
class Hebb(HebbianMethod):
    """The unit whose weights have the largest cosine with a patch wins it and moves toward its direction.

    The activity of a unit is its cosine, clipped at zero, which replaces the network's activations. Biases,
    and gains of norms, are left out. Competing units start at patches of random samples, so that all of them
    win some.

    Args:
        rule: only the winner moves, toward the mean of the patches that it won (competitive); or units do not
            compete, and each becomes the first principal component (oja) or the next component (sanger).
        rate: share of the distance that a unit moves in a batch.
        power: exponent of the clipped cosine; 1 leaves it unchanged.
    """

    name = "hebb"
    info = MethodInfo(
        title="Hebbian learning",
        paper="Hebb 1949, The Organization of Behavior; Oja 1982, Simplified neuron model as a principal "
        "component analyzer; Rumelhart and Zipser 1985, Feature discovery by competitive learning",
        data_parallel=False,
        autocast=False,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        rule: Literal["competitive", "oja", "sanger"] = "competitive",
        rate: float = 0.1,
        power: float = 6.0,
        **options: Any,
    ) -> None:
        require(0 < rate <= 1, f"rate is a share and must be above 0 and at most 1, not {rate:g}.")
        require(power > 0, f"power must be above 0, not {power:g}.")
        table = without_biases(network, classes)
        rows = tuple(replace(row, activation="relu", power=power) for row in table.affine_rows)
        super().__init__(replace(table, rows=rows), classes, **options)
        self.rule = rule
        self.rate = rate
        for layer in range(len(self.blocks)):
            width = self.affine_block(layer).row.width
            self.register_buffer(f"shares{layer}", torch.full((width,), 1 / width))

    def response(self, layer: int, x: Tensor) -> Tensor:
        """The cosine between each unit's weights and each patch: [B, *affine_in_shape] -> [B, *map_shape]."""
        affine = self.affine_block(layer).affine
        weight = functional.project(affine.weight.flatten(1)).view_as(affine.weight)
        if isinstance(affine, nn.Linear):
            return F.linear(x, weight) / lengths(affine, x)
        return F.conv2d(x, weight, None, affine.stride, affine.padding) / lengths(affine, x)

    def change(self, layer: int, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        block, weight = self.affine_block(layer), self.affine_block(layer).affine.weight
        length = lengths(block.affine, x)
        best = u.argmax(1, keepdim=True)
        watched = 1 - u.gather(1, best).mean()
        if self.rule == "competitive":
            gates = torch.zeros_like(u).scatter_(1, best, 1.0)
            won = unit_sums(gates)
            self.get_buffer(f"shares{layer}").lerp_(won / won.sum(), 0.01)
            means = patch_sums(block, gates / length, x) / by_unit(won.clamp_min(1), weight)
            return self.rate * torch.where(by_unit(won, weight) > 0, means - weight, 0), watched
        outputs = u * by_unit(torch.linalg.vector_norm(weight.flatten(1), dim=1), u[0])
        by_units = outputs.transpose(0, 1).flatten(1)
        products = by_units @ by_units.T
        taken = products.tril() if self.rule == "sanger" else products.diag().diag()
        change = patch_sums(block, outputs / length, x) - (taken @ weight.flatten(1)).view_as(weight)
        return self.rate * change / by_units.shape[1], watched

    @torch.no_grad()
    def prepare(self, stage: Stage, batches: Callable[[], Iterable[Batch]]) -> None:
        if stage.labels or self.rule != "competitive":
            return
        self.enter(stage)
        samples, places = random_samples(
            batches, max(self.affine_block(layer).row.width for layer in stage.blocks)
        )
        for layer in stage.blocks:
            weight = self.affine_block(layer).affine.weight
            # Units beyond the number of samples keep their random weights.
            count = min(len(samples), len(weight))
            units = torch.arange(count, device=weight.device)
            # Chunks of equal size, because batch norm cannot normalize a last chunk of one sample.
            for some in units.tensor_split(math.ceil(count / CHUNK)):
                weight[some] = self._patches(layer, samples[some], places[some], some)

    def diagnostics(self) -> dict[str, float]:
        """The share of units in each block that recently won less than a tenth of an equal share."""
        if self.rule != "competitive":
            return {}
        shares = [self.get_buffer(f"shares{layer}") for layer in range(len(self.blocks))]
        return {
            f"dead units of block {layer}": float((share < 0.1 / len(share)).float().mean())
            for layer, share in enumerate(shares)
        }

    def _patches(self, layer: int, samples: Tensor, places: Tensor, units: Tensor) -> Tensor:
        """The directions of patches for these units [N], each shaped like a unit's weights.

        Unit units[i] gets a patch of samples[i], at the position places[i] in [0, 1) of all positions.
        """
        block, x = self.affine_block(layer), self.affine_input(layer, self.frozen_features(samples, layer))
        positions = math.prod(block.map_shape[1:])
        gates = x.new_zeros(len(x), block.row.width, positions)
        gates[torch.arange(len(x)), units, (places * positions).long()] = 1
        return patch_sums(block, gates.view(len(x), *block.map_shape) / lengths(block.affine, x), x)[units]


def lengths(affine: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
    """The length of each input patch: [B, D] -> [B, 1], [B, C, H, W] -> [B, 1, H', W']."""
    if isinstance(affine, nn.Linear):
        length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return length.clamp_min(TINY)
    window = x.new_ones(1, 1, *affine.kernel_size)
    squares = F.conv2d(x.square().sum(1, keepdim=True), window, None, affine.stride, affine.padding)
    return squares.clamp_min(TINY**2).sqrt()


def random_samples(batches: Callable[[], Iterable[Batch]], count: int) -> tuple[Tensor, Tensor]:
    """The given number of random samples [N, ...], and a random number in [0, 1) for each [N]."""
    # Two passes over the data, so that only the drawn samples are held in memory.
    keys = torch.cat([batch.draw("start") for batch in batches()])
    last = keys.sort().values[:count][-1]
    samples, places = [], []
    for batch in batches():
        near = batch.draw("start") <= last
        samples.append(batch.x[near])
        places.append(batch.draw("place")[near])
    order = keys[keys <= last].argsort()[:count]
    return torch.cat(samples)[order], torch.cat(places)[order]
