"""A read-out that is the mean of each class."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff import functional


class ClassMeans(nn.Module):
    """A Hebbian read-out: the label drives its own unit, so a unit's weights become the mean of its class.

    Unit c moves by (x - w_c) / n_c at the n_c-th sample of its class: w_c is the mean of all so far.

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
        """Projections of the features on the directions of the class means, [B, D] -> [B, C]."""
        return features @ functional.project(self.weight).T

    @torch.no_grad()
    def learn(self, features: Tensor, y: Tensor) -> Tensor:
        """Takes in a batch [B, D] with labels [B]; returns the cross-entropy of the scores before, []."""
        loss = functional.cross_entropy(self(features), y)
        driven = F.one_hot(y, len(self.weight)).to(features.dtype)
        self.counts += driven.sum(0)
        drawn = driven.T @ features - driven.sum(0).unsqueeze(1) * self.weight
        subtract(self.weight, drawn / self.counts.clamp_min(1).unsqueeze(1))
        return loss


def subtract(weight: Tensor, change: Tensor) -> None:
    """Adds to the gradient of the weights what the loop has to subtract for the weights to change so."""
    weight.grad = -change if weight.grad is None else weight.grad - change
