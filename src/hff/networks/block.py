"""The contract of a block: one layer of a network, built from one row of its table."""

import math
from abc import ABC, abstractmethod

from torch import Tensor, nn

from hff.errors import UserError

Shape = tuple[int, ...]


class TooSmall(UserError):
    """The input is too small for a layer; the network knows which size would be large enough."""


class Row(ABC):
    """One row of a network's table. It builds its block, so a new kind of layer is a new kind of row."""

    kind: str
    """Names the kind of layer, such as "conv"; methods declare which kinds they can train."""
    width: int
    """Output channels or units."""
    aux_channels: int | None = None
    """Width of HFF's auxiliary head beside this row, where the paper's table has one."""

    @abstractmethod
    def build(self, in_shape: Shape) -> "Block":
        """A block for inputs [*in_shape], initialized from torch's global generator."""

    @abstractmethod
    def out_shape(self, in_shape: Shape) -> Shape:
        """The shape of the block's output; raises `TooSmall` where it would be empty."""


class Block(nn.Module, ABC):
    """One layer. Its output is its activity after dropout; local losses judge the activity.

    Args:
        row: the row that the block was built from.
        in_shape: shape of one input.
        out_shape: shape of one output.
        dropout: share of the activity that is dropped in training.
    """

    def __init__(self, row: Row, in_shape: Shape, out_shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
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
        """Everything but the dropout: [B, *in_shape] -> [B, *out_shape]."""

    def forward(self, x: Tensor) -> Tensor:
        """The input of the next block: [B, *in_shape] -> [B, *out_shape]."""
        out: Tensor = self.dropout(self.activity(x))
        return out
