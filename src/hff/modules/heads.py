"""The auxiliary head beside a block."""

import torch.nn.functional as F
from torch import Tensor, nn

from hff.errors import UserError
from hff.networks import Shape


class Head(nn.Module):
    """The vector [B, dim] that an activity [B, *shape] is judged by: a map is pooled, then it is projected.

    The paper convolves with 1x1 kernels, then pools globally. The two commute, so this pools first and
    projects the vector: the same numbers at a small part of the cost. A grid keeps more of the map.

    Args:
        shape: [C, H, W], or [D].
        grid: side of the grid that a map is average-pooled to; 1 is global average pooling, 0 is no pooling.
        channels: width of the projection; 0 means none, the pooled map itself is the vector.
        hidden: units of a ReLU layer between pooling and projection; 0 means none.
        bias: whether the projection has a bias.
    """

    def __init__(self, shape: Shape, *, grid: int, channels: int, hidden: int = 0, bias: bool = True) -> None:
        super().__init__()
        if grid < 0 or channels < 0 or hidden < 0:
            raise UserError("grid, aux_channels and head_hidden must not be negative.")
        self.grid: tuple[int, int] | None = None
        if len(shape) == 1:
            (self.dim,) = shape
        else:
            depth, height, width = shape
            cells = (min(grid, height), min(grid, width)) if grid else (height, width)
            self.dim = depth * cells[0] * cells[1]
            self.grid = cells if cells != (height, width) else None
        layers: list[nn.Module] = []
        if hidden:
            layers += [nn.Linear(self.dim, hidden), nn.ReLU()]
            self.dim = hidden
        if channels:
            layers.append(nn.Linear(self.dim, channels, bias=bias))
            self.dim = channels
        self.project = nn.Sequential(*layers)

    def forward(self, h: Tensor) -> Tensor:
        if self.grid is not None:
            h = F.adaptive_avg_pool2d(h, self.grid)
        vector: Tensor = self.project(h.flatten(1))
        return vector
