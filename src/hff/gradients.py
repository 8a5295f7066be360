"""Closed-form gradients of the functions in `functional`, for layers that learn without autograd.

All functions take several layers of the same width at once, because for small layers most of the time is
spent between operations. Scores and their gradients are [L, C, B], with the samples last, which is the order
of the product of prototypes and features, and the one in which a softmax over few classes is fast. The tests
compare all of them with autograd.

Shapes: L layers, B samples, C classes, P prototypes per class, D dimensions.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten

SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "relu": lambda gradient, h: aten.threshold_backward(gradient, h, 0),
    "leaky_relu": lambda gradient, h: aten.leaky_relu_backward(gradient, h, 0.01, True),
    "tanh": lambda gradient, h: aten.tanh_backward(gradient, h),
    "hard_tanh": lambda gradient, h: aten.hardtanh_backward(gradient, h, -1, 1),
    "sigmoid": lambda gradient, h: aten.sigmoid_backward(gradient, h),
    "identity": None,
}
"""Activations whose derivative is a function of their value h, with the kernels that autograd uses."""


def cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """`functional.cross_entropy` of each of L layers.

    Takes scores [L, C, B] and labels [B], and returns the losses [L] and their gradient [L, C, B].
    """
    own = _own(scores, labels)
    logs = torch.log_softmax(scores, dim=1)
    losses = -logs.gather(1, own).mean((1, 2))
    gradient = logs.exp_()
    gradient.scatter_add_(1, own, gradient.new_full((), -1.0).expand_as(own))
    return losses, gradient.mul_(1 / len(labels))


def smooth_margin_loss(
    scores: Tensor,
    labels: Tensor,
    temperature: float,
    *,
    lse: Literal["sum", "mean"] = "sum",
    scale_margin: bool = False,
) -> tuple[Tensor, Tensor]:
    """`functional.smooth_margin_loss` (Eq. 7) of each of L layers.

    Takes scores [L, C, B] and labels [B], and returns the losses [L] and their gradient [L, C, B]. With m the
    margin and s its scale, the gradient is sigmoid(s m) s / B times the softmax of the negatives at this
    temperature, and minus one for the true class.
    """
    own = _own(scores, labels)
    negatives = temperature * scores
    positive = negatives.gather(1, own)
    negatives.scatter_(1, own, -torch.inf)
    logs = torch.log_softmax(negatives, dim=1)
    # Both maxima are at the same class, where the difference, the LogSumExp, is most accurate.
    margin = negatives.amax(1, keepdim=True).sub_(logs.amax(1, keepdim=True)).sub_(positive)
    if lse == "mean":
        margin -= math.log(scores.shape[1] - 1)
    if not scale_margin:
        margin *= 1 / temperature
    losses = F.softplus(margin).mean((1, 2))
    weight = margin.sigmoid_().mul_((temperature if scale_margin else 1.0) / len(labels))
    gradient = logs.exp_().mul_(weight)
    return losses, gradient.scatter_(1, own, weight.neg_())


def _own(scores: Tensor, labels: Tensor) -> Tensor:
    """The index of the true class in scores [L, C, B], from labels [B] -> [L, 1, B]."""
    return labels.view(1, 1, -1).expand(len(scores), 1, -1)


def class_scores(
    features: Tensor, prototypes: Tensor, temperature: float
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """`functional.class_scores` (Eq. 6) of each of L layers.

    Takes features [L, B, D] and prototypes [L, C, P, D]. Returns the scores [L, C, B] and a function from
    their gradient [L, C, B] to the gradients of features and prototypes. A class divides its gradient among
    its prototypes by the softmax of their similarities at this temperature.
    """
    flat = prototypes.flatten(1, 2)
    scores = torch.bmm(flat, features.mT)
    shares: Tensor | None = None
    if prototypes.shape[2] > 1:
        scaled = (temperature * scores).unflatten(1, prototypes.shape[1:3])
        scores = torch.logsumexp(scaled, dim=2) / temperature
        shares = torch.softmax(scaled, dim=2)

    def backward(gradient: Tensor) -> tuple[Tensor, Tensor]:
        if shares is not None:
            gradient = (shares * gradient.unsqueeze(2)).flatten(1, 2)
        return torch.bmm(gradient.mT, flat), torch.bmm(gradient, features).view_as(prototypes)

    return scores, backward


def linear_scores(features: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """The scores of a linear head in each of L layers.

    Takes features [L, B, D], weights [L, C, D] and biases [L, C], and returns the scores [L, C, B].
    """
    if biases is None:
        return torch.bmm(weights, features.mT)
    return torch.baddbmm(biases.unsqueeze(2), weights, features.mT)


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors of L layers as one [L, ...]. That of a single layer is not copied."""
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(list(tensors))


def project(h: Tensor, gradient: Tensor, eps: float = 1e-6) -> Tensor:
    """The gradient of `functional.project` (Eq. 5) at h [..., D]: its tangential part, divided by |h|."""
    norm = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    inverse = 1 / norm.clamp_min(eps)
    radial = (h * gradient).sum(-1, keepdim=True) * inverse.square()
    tangential: Tensor = (gradient - h * radial) * inverse
    return tangential.masked_fill_(norm <= eps, 0)


def grid_pool(gradient: Tensor, size: Sequence[int]) -> Tensor:
    """The gradient of maps [B, C, *size], from that of their averages over a grid [B, C, *cells].

    The result has its channels last.
    """
    (height, width), (rows, columns) = size, gradient.shape[2:]
    if height % rows == 0 and width % columns == 0:
        share = rows * columns / (height * width)
        last = (gradient * share).contiguous(memory_format=torch.channels_last)
        return F.interpolate(last, (height, width), mode="nearest")
    by_cell = gradient.flatten(2).transpose(1, 2)
    shares = _shares(height, width, (rows, columns)).to(gradient.device, gradient.dtype)
    maps: Tensor = (shares.T @ by_cell).unflatten(1, (height, width)).permute(0, 3, 1, 2)
    return maps


@lru_cache(maxsize=64)
def _shares(height: int, width: int, cells: tuple[int, int]) -> Tensor:
    """The share of each position in the mean of each cell [cells, H W]."""
    return torch.kron(_shares_of_side(height, cells[0]), _shares_of_side(width, cells[1]))


def _shares_of_side(length: int, cells: int) -> Tensor:
    shares = torch.zeros(cells, length)
    for cell in range(cells):
        first, end = cell * length // cells, -(-(cell + 1) * length // cells)
        shares[cell, first:end] = 1 / (end - first)
    return shares


def activation(name: str, activity: Tensor, gradient: Tensor, *, in_place: bool = False) -> Tensor:
    """The gradient of an activation in `SLOPES`, from its value and the gradient of it [...].

    With `in_place`, the memory of the gradient may be used for the result.
    """
    if in_place and name == "relu" and gradient.stride() == activity.stride():
        return aten.threshold_backward.grad_input(gradient, activity, 0, grad_input=gradient)  # type: ignore[no-any-return]
    slope = SLOPES[name]
    return gradient if slope is None else slope(gradient, activity)
