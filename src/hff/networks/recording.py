"""Pooling, and what the backward pass of an affine block needs if autograd does not record it."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hff import gradients


@dataclass(frozen=True)
class Pool:
    """A pooling window."""

    size: int
    stride: int
    padding: int = 0
    kind: Literal["max", "average"] = "max"

    def __call__(self, h: Tensor) -> Tensor:
        pool = F.max_pool2d if self.kind == "max" else F.avg_pool2d
        return pool(h, self.size, self.stride, self.padding)


class Recording:
    """One forward pass of an affine block without autograd."""

    inputs: Tensor
    """The input of the affine map."""
    activity: Tensor
    """The output of the activation."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._map: Tensor | None = None
        self._places: Tensor | None = None

    def pooled(self, f: Tensor, pool: Pool | None) -> Tensor:
        """Max-pools the preactivation f [B, *map_shape], and keeps where the maxima are."""
        assert pool is not None
        self._pool, self._map = pool, f
        pooled, self._places = F.max_pool2d(f, pool.size, pool.stride, pool.padding, return_indices=True)
        return pooled

    def backward(self, part: slice, gradient: Tensor, activation: str) -> Tensor:
        """The gradient of the preactivation of some samples, from that of their activity.

        The memory of the gradient is used again.
        """
        gradient = gradients.activation(activation, self.activity[part], gradient, in_place=True)
        if self._pool is None or self._map is None or self._places is None:
            return gradient
        size, stride, padding = ((n, n) for n in (self._pool.size, self._pool.stride, self._pool.padding))
        found: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, self._map[part], size, stride, padding, (1, 1), False, self._places[part]
        )
        return found
