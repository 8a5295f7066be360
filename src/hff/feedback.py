"""Errors that travel down by weights of their own, not by the transpose of the forward ones.

A rule that sends errors down (feedback alignment and its kin) runs each block as a `Pass`: a forward pass on
a graph of its own, cut at both ends of the affine map. Activation, pooling and norm are differentiated by
autograd inside the block; past the affine map the error goes by `Feedback` weights.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from hff.errors import UserError
from hff.networks import Block, Network, Row


class Feedback(nn.Module):
    """Weights shaped like a block's own that carry an error from the affine map's output to its input.

    Args:
        block: the block that the error passes down.
        scale: standard deviation of the weights; None: such that an error keeps its size on the way down.
        learned: whether the weights are a parameter.
    """

    weight: Tensor

    def __init__(self, block: Block, *, scale: float | None = None, learned: bool = False) -> None:
        super().__init__()
        if scale is not None and scale <= 0:
            raise UserError(f"feedback_scale must be above 0, not {scale:g}.")
        self.read_shape = block.read_shape
        self.stride, self.padding, self.groups = block.row.stride, block.row.padding, block.row.groups
        shape = block.affine.weight.shape
        if scale is None:
            # So many errors add up in a unit below: of all units, or of its group's channels and the kernel.
            groups = self.groups if len(shape) > 2 else 1
            scale = (shape[0] // groups * shape[2:].numel()) ** -0.5
        weight = scale * torch.randn(shape)
        if learned:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)

    def forward(self, error: Tensor) -> Tensor:
        """An error at the affine map's output [B, *map_shape] -> at its input, as the block `read`s it."""
        if self.weight.dim() == 2:
            return error @ self.weight
        shape = (len(error), *self.read_shape)
        below: Tensor = conv2d_input(shape, self.weight, error, self.stride, self.padding, groups=self.groups)
        return below


class Pass:
    """A forward pass of a block on its input x [B, *in_shape], kept until its error comes back."""

    def __init__(self, block: Block, x: Tensor) -> None:
        with torch.enable_grad():
            self._x = x.detach().requires_grad_()
            self._read = block.read(self._x)
            self._given = block.affine(self._read.detach())
            self._taken = self._given.detach().requires_grad_()
            self._out = block.hand_on(block.activate(block.normalise(self._taken)))

    @property
    def out(self) -> Tensor:
        """What the next block gets [B, *out_shape], with no graph behind it."""
        return self._out.detach()

    def learn(self, error: Tensor) -> Tensor:
        """Adds the gradients that an error at the output [B, *out_shape] gives to affine map and norm.

        Returns the error at the affine map's output [B, *map_shape].
        """
        self._out.backward(error)
        at_map: Tensor | None = self._taken.grad
        assert at_map is not None
        self._given.backward(at_map)
        return at_map

    def down(self, at_read: Tensor) -> Tensor:
        """Takes an error at what the affine map reads on to the block's input [B, *in_shape]."""
        self._read.backward(at_read)
        below: Tensor | None = self._x.grad
        assert below is not None
        return below


class FeedbackLinear(nn.Linear):
    """A linear map [..., inputs] -> [..., outputs] with weights of its own for the way back.

    The error e [..., outputs] of its output reaches its input as e B, with B [outputs, inputs] drawn once and
    never learned, where backpropagation has e W.
    """

    feedback: Tensor

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias=bias)
        bound = 1 / math.sqrt(inputs)
        self.register_buffer("feedback", torch.empty(outputs, inputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        if not x.requires_grad:
            return super().forward(x)
        # The second term is exactly zero; only its gradient counts.
        back = F.linear(x, self.feedback)
        return F.linear(x.detach(), self.weight, self.bias) + (back - back.detach())


def with_output(network: Network, classes: int) -> Network:
    """The network with a last row that gives the scores: C units without activation.

    A last linear row of C units becomes it; otherwise one is added, with a bias if the row before has one.
    """
    *lower, last = network.rows
    if last.kind == "linear" and last.width == classes:
        output = replace(last, activation="identity", dropout=0.0)
    else:
        lower.append(last)
        output = Row("linear", classes, activation="identity", bias=last.bias)
    return replace(network, rows=(*lower, output))
