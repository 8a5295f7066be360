"""Feedback weights that send errors down the network instead of the transposed forward weights.

A rule that sends errors from block to block (such as feedback alignment) runs each block as a `Pass`: a
forward pass with its own graph, which is cut before and after the affine map. Inside the block, autograd
differentiates activation, pooling and norm. Across the affine map, the error is sent by `Feedback` weights. A
rule that sends the error of the output directly to each block uses `DirectFeedback`.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from hff.errors import UserError
from hff.networks import AffineBlock, Shape

Distribution = Literal["normal", "uniform", "signs"]
Scale = float | Literal["weights", "xavier"] | None


class Feedback(nn.Module):
    """Weights with the shape of a block's own that send an error from the affine map's output to its input.

    Args:
        block: the block that the error is sent through.
        scale: standard deviation of the weights: a number; "weights", as forward weights are initialized;
            "xavier", between fan-in and fan-out; or None, so that an error keeps its size on the way down.
        distribution: distribution of the weights; "signs" means two values, one of each sign.
        learned: whether the weights are a parameter.
    """

    weight: Tensor

    def __init__(
        self,
        block: AffineBlock,
        *,
        scale: Scale = None,
        distribution: Distribution = "normal",
        learned: bool = False,
    ) -> None:
        super().__init__()
        self.affine_in_shape = block.affine_in_shape
        self.stride, self.groups = block.row.stride, block.row.groups
        # A reflected border is part of the map's input. Only a border of zeros is added by the map itself.
        self.padding = block.row.padding if block.row.padding_mode == "zeros" else 0
        self.scale = _standard_deviation(block, scale)
        weight = self.scale * _drawn(block.affine.weight.shape, distribution)
        if learned:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)

    def follow_signs(self, forward_weight: Tensor) -> None:
        """Copies the signs of the forward weights, all with the same size: sign-symmetric feedback."""
        self.weight.copy_(self.scale * forward_weight.detach().sign())

    def forward(self, error: Tensor) -> Tensor:
        """Error at the affine map's output [B, *map_shape] -> error at its input [B, *affine_in_shape]."""
        if self.weight.dim() == 2:
            return error @ self.weight
        shape = (len(error), *self.affine_in_shape)
        below: Tensor = conv2d_input(shape, self.weight, error, self.stride, self.padding, groups=self.groups)
        return below


class Pass:
    """A forward pass of a block on its input x [B, *in_shape], kept until its error is known."""

    def __init__(self, block: AffineBlock, x: Tensor) -> None:
        with torch.enable_grad():
            self._x = x.detach().requires_grad_()
            self._read = block.affine_input(self._x)
            self._given = block.affine(self._read.detach())
            self._taken = self._given.detach().requires_grad_()
            self._out = block.output_from(block.normalize(self._taken))

    @property
    def out(self) -> Tensor:
        """Detached output of the block [B, *out_shape]."""
        return self._out.detach()

    def learn(self, error: Tensor) -> Tensor:
        """Adds the gradients of affine map and norm, given an error at the output [B, *out_shape].

        Returns the error at the affine map's output [B, *map_shape].
        """
        self._out.backward(error)
        at_map: Tensor | None = self._taken.grad
        assert at_map is not None
        self._given.backward(at_map)
        return at_map

    def down(self, at_read: Tensor) -> Tensor:
        """Error at the affine map's input -> error at the block's input [B, *in_shape]."""
        self._read.backward(at_read)
        below: Tensor | None = self._x.grad
        assert below is not None
        return below


class DirectFeedback(nn.Module, ABC):
    """Fixed random weights that send the output's error [B, C] directly to a block's output [B, *shape].

    Args:
        classes: C.
        shape: out_shape of the block; N is the number of its units.
        scale: factor for the range of the random weights.
        replicated: whether all positions of a map get the same signal, so only its channels have weights.
    """

    def __init__(self, classes: int, shape: Shape, *, scale: float = 1.0, replicated: bool = False) -> None:
        super().__init__()
        if scale <= 0:
            raise UserError(f"feedback_scale must be above 0, not {scale:g}.")
        self.classes = classes
        self.shape = shape
        self.positions = math.prod(shape[1:]) if replicated else 1
        self.units = math.prod(shape) // self.positions
        self.bound = scale / math.sqrt(math.prod(shape))

    @abstractmethod
    def signal(self, error: Tensor) -> Tensor:
        """Error [B, C] -> signal for the units that have weights [B, units]."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The weights as a matrix [C, units]."""

    def forward(self, error: Tensor) -> Tensor:
        signal = self.signal(error)
        if self.positions == 1:
            return signal.view(-1, *self.shape)
        return signal[:, :, None, None].expand(-1, *self.shape)

    def matrix(self) -> Tensor:
        """The weights as a matrix [C, N] for all units of the block's output."""
        return self.dense().repeat_interleave(self.positions, 1)


class DenseFeedback(DirectFeedback):
    """Direct feedback from every class to every unit, uniform between +-1/sqrt(N)."""

    weight: Tensor

    def __init__(self, classes: int, shape: Shape, *, scale: float = 1.0, replicated: bool = False) -> None:
        super().__init__(classes, shape, scale=scale, replicated=replicated)
        weight = torch.empty(classes, self.units).uniform_(-self.bound, self.bound)
        self.register_buffer("weight", weight)

    def signal(self, error: Tensor) -> Tensor:
        return error @ self.weight

    def dense(self) -> Tensor:
        return self.weight


class SparseFeedback(DirectFeedback):
    """Direct feedback in which each unit gets the error of s classes, uniform between +-(C s)^(1/4)/sqrt(N).

    It is stored as class indices and weights, and uses a gather instead of a matrix product.
    """

    index: Tensor
    value: Tensor

    def __init__(
        self, classes: int, shape: Shape, *, scale: float = 1.0, replicated: bool = False, listens_to: int = 1
    ) -> None:
        super().__init__(classes, shape, scale=scale, replicated=replicated)
        if not 1 <= listens_to <= classes:
            raise UserError(f"listens_to must lie between 1 and the {classes} classes, not {listens_to}.")
        bound = self.bound * (classes * listens_to) ** 0.25
        self.register_buffer("index", _distinct(classes, listens_to, self.units))
        self.register_buffer("value", torch.empty(listens_to, self.units).uniform_(-bound, bound))

    def signal(self, error: Tensor) -> Tensor:
        signal = error.index_select(1, self.index[0]) * self.value[0]
        for index, value in zip(self.index[1:], self.value[1:], strict=True):
            signal.addcmul_(error.index_select(1, index), value)
        return signal

    def dense(self) -> Tensor:
        weights = self.value.new_zeros(self.classes, self.units)
        return weights.scatter_(0, self.index, self.value)


class FeedbackLinear(nn.Linear):
    """A linear map [..., inputs] -> [..., outputs] with separate weights for the backward pass.

    The error e [..., outputs] of its output reaches its input as e B, where backpropagation would use e W.
    B [outputs, inputs] is drawn once and never trained.
    """

    feedback: Tensor

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias=bias)
        bound = 1 / math.sqrt(inputs)
        self.register_buffer("feedback", torch.empty(outputs, inputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        if not x.requires_grad:
            return super().forward(x)
        # The second term is exactly zero. It only adds a gradient.
        back = F.linear(x, self.feedback)
        return F.linear(x.detach(), self.weight, self.bias) + (back - back.detach())


def angle(a: Tensor, b: Tensor) -> float:
    """Angle in degrees between two tensors of the same shape; 90 if one of them is zero."""
    a, b = a.detach().double().flatten(), b.detach().double().flatten()
    lengths = a.norm() * b.norm()
    cosine = (a @ b / lengths).clamp(-1, 1) if lengths > 0 else torch.zeros(())
    return math.degrees(math.acos(float(cosine)))


def _standard_deviation(block: AffineBlock, scale: Scale) -> float:
    if isinstance(scale, float | int):
        if scale <= 0:
            raise UserError(f"feedback_scale must be above 0, not {scale:g}.")
        return scale
    shape = block.affine.weight.shape
    into = shape[1:].numel()
    # Number of errors that add up in a unit below: all units, or the channels of its group times the kernel.
    out_of = shape[0] // (block.row.groups if len(shape) > 2 else 1) * shape[2:].numel()
    if scale == "weights":
        # PyTorch draws forward weights uniformly from +-1/sqrt(fan-in).
        return float((3 * into) ** -0.5)
    if scale == "xavier":
        return float((2 / (into + out_of)) ** 0.5)
    return float(out_of**-0.5)


def _drawn(shape: Shape, distribution: Distribution) -> Tensor:
    """Random numbers [*shape] with mean 0 and standard deviation 1."""
    if distribution == "normal":
        return torch.randn(shape)
    if distribution == "uniform":
        bound = math.sqrt(3)
        return torch.empty(shape).uniform_(-bound, bound)
    return torch.randint(2, shape) * 2.0 - 1.0


def _distinct(classes: int, count: int, units: int) -> Tensor:
    """Draws `count` different classes for each unit, uniformly -> [count, units]."""
    drawn = torch.empty(0, units, dtype=torch.int64)
    for taken in range(count):
        # Draw a rank among the remaining classes, then skip the classes that are already taken.
        new = torch.randint(classes - taken, (units,))
        for earlier in drawn.sort(0).values:
            new += new >= earlier
        drawn = torch.cat([drawn, new[None]])
    return drawn
