"""Average pooling of a map to a small grid, with a backward pass that is fast for any memory format."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cells = tuple[int, int]


def grid_pool(h: Tensor, cells: Cells) -> Tensor:
    """Average-pools maps to a grid, like `adaptive_avg_pool2d`: [B, C, H, W] -> [B, C, *cells].

    The backward pass of torch takes most of the time of a small auxiliary head, because it converts the
    memory format of the map. This one takes a fifth of the time, and its result has its channels last.
    """
    pooled: Tensor = _GridPool.apply(h, cells)  # type: ignore[no-untyped-call]
    return pooled


class GridPool(nn.Module):
    """`grid_pool` as a module.

    Args:
        cells: rows and columns of the grid.
    """

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self.cells = cells

    def forward(self, h: Tensor) -> Tensor:
        return grid_pool(h, self.cells)


class _GridPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, cells: Cells) -> Tensor:
        ctx.size = h.shape[2:]
        return F.adaptive_avg_pool2d(h, cells)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return spread(gradient, ctx.size), None


def spread(gradient: Tensor, size: Sequence[int]) -> Tensor:
    """The gradient of maps [B, C, *size], from that of their grid [B, C, *cells]."""
    (height, width), cells = size, gradient.shape[2:]
    if height % cells[0] == 0 and width % cells[1] == 0:
        share = cells.numel() / (height * width)
        last = (gradient * share).contiguous(memory_format=torch.channels_last)
        return F.interpolate(last, (height, width), mode="nearest")
    by_cell = gradient.flatten(2).transpose(1, 2)
    shares = _shares(height, width, tuple(cells)).to(gradient.device, gradient.dtype)
    over_map = (shares.T @ by_cell).unflatten(1, (height, width))
    maps: Tensor = over_map.permute(0, 3, 1, 2)
    return maps


@lru_cache(maxsize=64)
def _shares(height: int, width: int, cells: Cells) -> Tensor:
    """The share of each position in the mean of each cell [cells, H W]."""
    return torch.kron(_shares_of_side(height, cells[0]), _shares_of_side(width, cells[1]))


def _shares_of_side(length: int, cells: int) -> Tensor:
    shares = torch.zeros(cells, length)
    for cell in range(cells):
        first, end = cell * length // cells, -(-(cell + 1) * length // cells)
        shares[cell, first:end] = 1 / (end - first)
    return shares
