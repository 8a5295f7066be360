"""A read-out by class means."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff import functional


class ClassMeans(nn.Module):
    """A Hebbian read-out: only the unit of the label is active, so its weights become the mean of its class.

    Unit c moves by (x - w_c) / n_c at the n_c-th sample of its class, so w_c is the mean of all of them.

    Args:
        dim: D, the number of features.
        classes: C.
    """

    counts: Tensor

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, dim))
        self.register_buffer("counts", torch.zeros(classes))

    def forward(self, features: Tensor) -> Tensor:
        """Projections of the features onto the directions of the class means: [B, D] -> [B, C]."""
        return features @ functional.project(self.weight).T

    @torch.no_grad()
    def learn(self, features: Tensor, y: Tensor) -> Tensor:
        """Adds a batch [B, D] with labels [B] to the means; returns the cross-entropy before that, []."""
        loss = functional.cross_entropy(self(features), y)
        target = F.one_hot(y, len(self.weight)).to(features.dtype)
        self.counts += target.sum(0)
        change = target.T @ features - target.sum(0).unsqueeze(1) * self.weight
        subtract(self.weight, change / self.counts.clamp_min(1).unsqueeze(1))
        return loss


def subtract(weight: Tensor, change: Tensor) -> None:
    """Subtracts a change from the gradient of the weights, for a step that subtracts the gradient."""
    weight.grad = -change if weight.grad is None else weight.grad - change
