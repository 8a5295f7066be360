"""A mini-batch as a method sees it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hff import randomness
from hff.randomness import Key


@dataclass(frozen=True)
class Batch:
    """One mini-batch as a method sees it."""

    x: Tensor
    """Inputs, normalised and augmented [B, ...]."""
    y: Tensor
    """Labels [B]."""
    index: Tensor
    """Which sample of the training split each row is [B]."""
    key: Key
    """(seed, stage, epoch, step): whatever a method draws for this batch hangs on it."""
    other_views: tuple[Tensor, ...] = ()
    """More views of the same samples, each like x and augmented on its own, for methods that ask for them."""
    digest: Tensor | None = None
    """What the method's `digest` makes of x [B, D], in stages that have digests, where the loop keeps it."""

    def uniform(self, count: int, purpose: str) -> Tensor:
        """Numbers in [0, 1) for each sample, [B, count], on the device of x."""
        return randomness.uniform(self.index, count, *self.key, purpose).to(self.x.device)

    def normal(self, count: int, purpose: str) -> Tensor:
        """Standard normal numbers for each sample, [B, count], on the device of x."""
        # The middle of each cell of the 24-bit grid, in double: its ends would be minus and plus infinity.
        middle = randomness.uniform(self.index, count, *self.key, purpose).double() + 2.0**-25
        draws: Tensor = torch.special.ndtri(middle)
        return draws.to(self.x.device, torch.float32)

    def draw(self, purpose: str) -> Tensor:
        """A number in [0, 1) for each sample [B], on the device of x."""
        return self.uniform(1, purpose)[:, 0]

    def to(self, device: torch.device) -> "Batch":
        if self.x.device == device:
            return self
        other_views = tuple(view.to(device) for view in self.other_views)
        digest = None if self.digest is None else self.digest.to(device)
        return Batch(self.x.to(device), self.y.to(device), self.index, self.key, other_views, digest)
