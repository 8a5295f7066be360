"""Layers whose error travels back through fixed random weights instead of the transpose of their own."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
