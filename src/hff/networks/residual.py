"""Residual networks: each row is one residual block, two convolutions and their shortcut."""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from hff.errors import UserError
from hff.networks.affine import AffineRow
from hff.networks.block import Block, Row, Shape, TooSmall
from hff.networks.network import register


@dataclass(frozen=True)
class ResidualRow(Row):
    """A row that builds a `ResidualBlock`."""

    width: int
    stride: int = 1
    dropout: float = 0.0
    aux_channels: int | None = None
    kind: Literal["residual"] = "residual"

    def build(self, in_shape: Shape) -> "ResidualBlock":
        return ResidualBlock(self, in_shape)

    def out_shape(self, in_shape: Shape) -> Shape:
        if len(in_shape) != 3:
            raise UserError(
                f"A residual block needs images [C, H, W], but the input has shape {list(in_shape)}."
            )
        if min(in_shape[1:]) < self.stride:
            raise TooSmall(f"The input {list(in_shape)} is too small for a layer of this network.")
        return (self.width, *((n - 1) // self.stride + 1 for n in in_shape[1:]))


class ResidualBlock(Block):
    """relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)), with 3x3 convolutions and batch norm.

    The shortcut is the identity if the shape stays the same, and otherwise a 1x1 convolution with batch norm.
    """

    row: ResidualRow

    def __init__(self, row: ResidualRow, in_shape: Shape) -> None:
        super().__init__(row, in_shape, row.out_shape(in_shape), row.dropout)
        channels, width = in_shape[0], row.width
        self.conv1 = nn.Conv2d(channels, width, 3, row.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if in_shape != self.out_shape:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, row.stride, bias=False), nn.BatchNorm2d(width)
            )

    def activity(self, x: Tensor) -> Tensor:
        residual = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(residual + self.shortcut(x))

    def extra_repr(self) -> str:
        return f"{list(self.in_shape)} -> {list(self.out_shape)}"


@register
def resnet(classes: int, *, depth: int = 20, dropout: float = 0.0, width_factor: float = 1.0) -> list[Row]:
    """ResNet for small images (He et al. 2016): a convolution, then residual blocks, each of them one layer.

    Args:
        depth: 20, 32, 44 or 56 (three stages of 16, 32 and 64 channels; 8 and 14 for small experiments), or
            18 (four stages of 64 to 512 channels).
        dropout: dropout probability of the output of each residual block.
        width_factor: factor of all widths, for small experiments.
    """
    widths: tuple[int, ...]
    if depth == 18:
        widths, blocks = (64, 128, 256, 512), 2
    elif depth >= 8 and depth % 6 == 2:
        widths, blocks = (16, 32, 64), (depth - 2) // 6
    else:
        raise UserError(f"depth of a resnet must be 18 or 6n + 2 (8, 14, 20, 32, 44, 56), not {depth}.")
    if width_factor <= 0:
        raise UserError(f"width_factor must be above 0, not {width_factor:g}.")
    widths = tuple(max(1, round(width * width_factor)) for width in widths)
    rows: list[Row] = [AffineRow("conv", widths[0], bias=False, norm="batch")]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            rows.append(ResidualRow(width, stride=2 if stage and not block else 1, dropout=dropout))
    return rows
