"""A mini-batch as a method sees it."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hff import randomness
from hff.randomness import Key


@dataclass(frozen=True)
class Batch:
    """One mini-batch: `Batch(x, y)` is enough in a training loop of your own."""

    x: Tensor
    """Inputs, normalized and augmented [B, ...]; or the output of the lowest `depth` blocks."""
    y: Tensor
    """Labels [B]."""
    index: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """Which sample of the training split each row is [B]; 0 to B - 1 if not given."""
    key: Key = ()
    """(seed, stage, epoch, step): all random numbers that a method draws for this batch depend on it."""
    other_views: tuple[Tensor, ...] = ()
    """More views of the same samples, each like x and augmented on its own, for methods that ask for them."""
    depth: int = 0
    """How many blocks x has passed already: above 0 where the features of frozen blocks are cached."""

    def __post_init__(self) -> None:
        if len(self.index) != len(self.y):
            object.__setattr__(self, "index", torch.arange(len(self.y)))

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
        """The batch on a device; indices stay on the CPU."""
        if self.x.device == device:
            return self
        views = tuple(view.to(device) for view in self.other_views)
        return replace(self, x=self.x.to(device), y=self.y.to(device), other_views=views)

    def split(self, size: int) -> "list[Batch]":
        """The batch in parts of at most `size` samples."""
        pieces = zip(self.x.split(size), self.y.split(size), self.index.split(size), strict=True)
        views = zip(*(view.split(size) for view in self.other_views), strict=True) if self.other_views else ()
        others = list(views) or [()] * -(-len(self.y) // size)
        return [
            replace(self, x=x, y=y, index=index, other_views=tuple(view))
            for (x, y, index), view in zip(pieces, others, strict=True)
        ]
