"""The interface of a block: one layer of a network, built from one row of its table."""

import math
from abc import ABC, abstractmethod

from torch import Tensor, nn

from hff.errors import UserError

Shape = tuple[int, ...]


class TooSmall(UserError):
    """The input is too small for a layer. `Network` turns it into an error that names the smallest size."""


class Row(ABC):
    """One row of a network's table. It builds its block, so a new kind of layer is a new subclass."""

    kind: str
    """The kind of layer, such as "conv"; methods declare which kinds they can train."""
    width: int
    """Output channels or units."""
    aux_channels: int | None = None
    """Channels of HFF's auxiliary head for this layer, if the paper's table has one."""

    @abstractmethod
    def build(self, in_shape: Shape) -> "Block":
        """A block for inputs [*in_shape], initialized from torch's global generator."""

    @abstractmethod
    def out_shape(self, in_shape: Shape) -> Shape:
        """The shape of the block's output; raises `TooSmall` if it would be empty."""


class Block(nn.Module, ABC):
    """One layer. Its output is its activity after dropout; local losses are computed on the activity.

    Args:
        row: the row that builds the block.
        in_shape: shape of one input.
        out_shape: shape of one output.
        dropout: dropout probability of the activity in training.
    """

    def __init__(self, row: Row, in_shape: Shape, out_shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise UserError(f"dropout must be at least 0 and below 1, not {dropout:g}.")
        self.row = row
        self.in_shape = in_shape
        self.out_shape = out_shape
        self.dropout = nn.Dropout(dropout)

    @property
    def out_features(self) -> int:
        """The number of values in one output."""
        return math.prod(self.out_shape)

    @abstractmethod
    def activity(self, x: Tensor) -> Tensor:
        """The output before dropout: [B, *in_shape] -> [B, *out_shape]."""

    def forward(self, x: Tensor) -> Tensor:
        """The input of the next block: [B, *in_shape] -> [B, *out_shape]."""
        out: Tensor = self.dropout(self.activity(x))
        return out


def module_at(modules: nn.ModuleList, index: int) -> nn.Module:
    """The same as `modules[index]`, without checks that take longer than a small operation of a layer."""
    return modules._modules[str(index)]
