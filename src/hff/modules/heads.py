"""The auxiliary head of a block."""

from collections.abc import Callable

from torch import Tensor, nn

from hff import gradients
from hff.errors import UserError
from hff.modules.grid_pool import grid_pool
from hff.networks import Shape
from hff.networks.affine import add_gradient


class Head(nn.Module):
    """Maps an activity [B, *shape] to the vector [B, dim] of the local loss: pools maps, then projects.

    The paper applies a 1x1 convolution and then global pooling. The two commute, so this head pools first and
    projects the vector. The result is the same at a small part of the cost. A larger grid keeps more of the
    map.

    Args:
        shape: [C, H, W], or [D].
        grid: side of the grid that a map is average-pooled to; 1 is global average pooling, 0 is no pooling.
        channels: width of the projection; with 0 there is no projection and the pooled map is the vector.
        hidden: units of a ReLU layer between pooling and projection; with 0 there is no such layer.
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

    @property
    def linear(self) -> nn.Linear | None:
        """The head itself, if it is just a linear map of a vector."""
        single = len(self.project) == 1 and self.grid is None
        return self.project[0] if single and type(self.project[0]) is nn.Linear else None

    def forward(self, h: Tensor) -> Tensor:
        if self.grid is not None:
            h = grid_pool(h, self.grid)
        vector: Tensor = self.project(h.flatten(1))
        return vector

    @property
    def has_closed_form(self) -> bool:
        """Whether `recorded` is all that autograd would do: no frozen weights and no hooks."""
        for module in (self, self.project, *self.project._modules.values()):
            if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
                return False
            if any(
                not parameter.requires_grad
                for parameter in module._parameters.values()
                if parameter is not None
            ):
                return False
        return True

    def recorded(self, h: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The vector, and a function from its gradient to that of h or of its grid, without autograd.

        The function adds to `.grad` of the parameters.
        """
        if self.grid is not None:
            h = grid_pool(h, self.grid)
        shape, x = h.shape, h.flatten(1)
        inputs: list[tuple[nn.Linear | None, Tensor]] = []
        for layer in self.project:
            if isinstance(layer, nn.Linear):
                inputs.append((layer, x))
                x = layer(x)
            else:
                x = x.relu_()
                inputs.append((None, x))

        def backward(gradient: Tensor) -> Tensor:
            for linear, kept in reversed(inputs):
                if linear is None:
                    gradient = gradients.activation("relu", kept, gradient, in_place=True)
                    continue
                add_gradient(linear.weight, gradient.t() @ kept)
                if linear.bias is not None:
                    add_gradient(linear.bias, gradient.sum(0))
                gradient = gradient @ linear.weight
            return gradient.reshape(shape)

        return x, backward
