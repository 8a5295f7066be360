"""Closed-form gradients of the functions in `functional`, for layers that learn without autograd.

Each loss returns its values and its gradient with respect to the scores. Both losses take the scores of
several layers at once, because for small layers most of the time is spent between operations. The other
functions take the gradient with respect to a result and return those with respect to the arguments. The tests
compare all of them with autograd.

Shapes: L layers, B samples, C classes, P prototypes per class, D dimensions.
"""

import math
from collections.abc import Callable
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

    Takes scores [L, B, C] and labels [B], and returns the losses [L] and their gradient [L, B, C].
    """
    own = _own(scores, labels)
    logs = torch.log_softmax(scores, dim=2)
    losses = -logs.gather(2, own).mean((1, 2))
    gradient = logs.exp_()
    gradient.scatter_add_(2, own, gradient.new_full((), -1.0).expand_as(own))
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

    Takes scores [L, B, C] and labels [B], and returns the losses [L] and their gradient [L, B, C]. With m the
    margin and s its scale, the gradient is sigmoid(s m) s / B times the softmax of the negatives at this
    temperature, and minus one for the true class.
    """
    own = _own(scores, labels)
    negatives = temperature * scores
    positive = negatives.gather(2, own)
    negatives.scatter_(2, own, -torch.inf)
    logs = torch.log_softmax(negatives, dim=2)
    # Both maxima are at the same class, where the difference, the LogSumExp, is most accurate.
    margin = negatives.amax(2, keepdim=True).sub_(logs.amax(2, keepdim=True)).sub_(positive)
    if lse == "mean":
        margin -= math.log(scores.shape[2] - 1)
    if not scale_margin:
        margin *= 1 / temperature
    losses = F.softplus(margin).mean((1, 2))
    weight = margin.sigmoid_().mul_((temperature if scale_margin else 1.0) / len(labels))
    gradient = logs.exp_().mul_(weight)
    return losses, gradient.scatter_(2, own, weight.neg_())


def _own(scores: Tensor, labels: Tensor) -> Tensor:
    """The index of the true class in scores [L, B, C], from labels [B] -> [L, B, 1]."""
    return labels.view(1, -1, 1).expand(len(scores), -1, 1)


def class_scores(
    features: Tensor, prototypes: Tensor, temperature: float, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of `functional.class_scores` (Eq. 6), from that of the scores [B, C].

    Takes features [B, D] and prototypes [C, P, D] and returns gradients of the same shapes. A class divides
    its gradient among its prototypes by the softmax of their similarities at this temperature.
    """
    flat = prototypes.flatten(0, 1)
    if prototypes.shape[1] > 1:
        products = (features @ flat.T).view(-1, *prototypes.shape[:2])
        gradient = (torch.softmax(temperature * products, dim=2) * gradient.unsqueeze(2)).flatten(1)
    return gradient @ flat, (gradient.T @ features).view_as(prototypes)


def project(h: Tensor, gradient: Tensor, eps: float = 1e-6) -> Tensor:
    """The gradient of `functional.project` (Eq. 5) at h [..., D]: its tangential part, divided by |h|."""
    norm = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    inverse = 1 / norm.clamp_min(eps)
    radial = (h * gradient).sum(-1, keepdim=True) * inverse.square()
    tangential: Tensor = (gradient - h * radial) * inverse
    return tangential.masked_fill_(norm <= eps, 0)


def activation(name: str, activity: Tensor, gradient: Tensor, *, in_place: bool = False) -> Tensor:
    """The gradient of an activation in `SLOPES`, from its value and the gradient of it [...].

    With `in_place`, the memory of the gradient may be used for the result.
    """
    if in_place and name == "relu" and gradient.stride() == activity.stride():
        return aten.threshold_backward.grad_input(gradient, activity, 0, grad_input=gradient)  # type: ignore[no-any-return]
    slope = SLOPES[name]
    return gradient if slope is None else slope(gradient, activity)
