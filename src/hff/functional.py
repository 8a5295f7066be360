"""The paper's equations, one pure function each, with the numbers that the paper prints.

Eqs. 3 and 4 (affine map, activation) are `torch.nn` layers. Eqs. 8 and 9 (last layer, arg max) do not need
a function. Eq. 23 is `project` of a pooled map. Eqs. 10, 11 and 16-22 are claims about these functions.

Shapes: B samples, C classes, P prototypes per class, D dimensions; [] is a scalar.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F


def project(h: Tensor, eps: float = 1e-6) -> Tensor:
    """Eq. 5: h / |h|, the projection of h [..., D] to the unit sphere -> [..., D].

    A vector no longer than `eps` has no direction: its projection and its gradient are zero.
    """
    # Squares, and even lengths, overflow in half precision, so the norm is computed in float32 or higher.
    wide = _at_least_float32(h)
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    # Filling discards the division for short vectors, but a NaN in it would still reach the gradient: clamp.
    direction: Tensor = wide / norm.clamp_min(eps)
    return direction.masked_fill(norm <= eps, 0).to(h.dtype)


def similarities(features: Tensor, prototypes: Tensor) -> Tensor:
    """Inner products <h, v_cp> of features [B, D] and prototypes [C, P, D] -> [B, C, P].

    They are cosines if both are unit vectors. Features of another length scale them.
    """
    # With few prototypes, the product in this order takes half the time of the transposed one.
    products: Tensor = (prototypes.flatten(0, 1) @ features.T).T
    return products.unflatten(1, prototypes.shape[:2])  # type: ignore[no-any-return]


def class_scores(features: Tensor, prototypes: Tensor, temperature: float) -> Tensor:
    """Eq. 6: g_c = (1/tau) log sum_p exp(tau <h, v_cp>) of features [B, D], prototypes [C, P, D] -> [B, C].

    With one prototype per class this is the similarity itself, at any temperature.
    """
    if prototypes.shape[1] == 1:
        # The same product as in `similarities`.
        return (prototypes.squeeze(1) @ features.T).T
    products = similarities(features, prototypes)
    return torch.logsumexp(temperature * products, dim=2) / temperature


def smooth_margin_loss(
    scores: Tensor,
    labels: Tensor,
    temperature: float,
    *,
    lse: Literal["sum", "mean"] = "sum",
    scale_margin: bool = False,
) -> Tensor:
    """Eq. 7: softplus((1/tau) log sum_{c != y} exp(tau g_c) - g_y), mean of scores [B, C], labels [B] -> [].

    `lse="mean"` averages inside the logarithm instead of summing. Only then does the term tend to the mean of
    the negatives as tau -> 0. `scale_margin` multiplies the margin by tau before the softplus.
    """
    classes = scores.shape[1]
    if classes < 2:
        raise ValueError(f"The smooth margin loss needs at least 2 classes, but got {classes}.")
    scores = _at_least_float32(scores)
    own = labels.unsqueeze(1)
    positive = scores.gather(1, own).squeeze(1)
    # Mask before the logarithm: subtracting exp(positive) from the full sum would cancel catastrophically.
    negatives = scores.scatter(1, own, -torch.inf)
    total = torch.logsumexp(temperature * negatives, dim=1)
    if lse == "mean":
        total = total - math.log(classes - 1)
    margin = total / temperature - positive
    return F.softplus(temperature * margin if scale_margin else margin).mean()


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """log sum_c exp(g_c) - g_y, mean of scores [B, C], labels [B] -> []: Eq. 7 at tau = 1 and P = 1."""
    return F.cross_entropy(_at_least_float32(scores), labels)


def goodness(h: Tensor) -> Tensor:
    """Eq. 1: g(h) = sum_i h_i^2 over all but the first dimension of h [B, ...] -> [B]."""
    # This reads h once; `square().sum()` would read it twice and make a copy.
    length: Tensor = torch.linalg.vector_norm(_at_least_float32(h).flatten(1), dim=1)
    return length.square()


def forward_forward_loss(positive: Tensor, negative: Tensor, threshold: float) -> Tensor:
    """Eq. 2: log(1 + exp(theta - g_pos)) + log(1 + exp(g_neg - theta)), mean of goodness [B], [B] -> []."""
    return F.softplus(threshold - positive).mean() + F.softplus(negative - threshold).mean()


def mean_goodness(h: Tensor) -> Tensor:
    """Mean square of all units of h [B, ...] -> [B]. It does not grow with the size of the layer."""
    return goodness(h) / h.shape[1:].numel()


def group_goodness(h: Tensor, groups: int) -> Tensor:
    """Mean square of each of `groups` equal groups of adjacent channels of h [B, G S, ...] -> [B, G]."""
    return _at_least_float32(h).reshape(h.shape[0], groups, -1).square().mean(2)


def symmetric_pair_loss(positive: Tensor, negative: Tensor, sharpness: float) -> Tensor:
    """SymBa: log(1 + exp(-alpha (g_pos - g_neg))), mean of the goodness of pairs [B], [B] -> []."""
    return F.softplus(sharpness * (negative - positive)).mean()


def marginal_contrastive_loss(
    features: Tensor, labels: Tensor, margin: float, temperature: float, negatives: Tensor | None = None
) -> Tensor:
    """FFCM: -mean_i mean_p log(exp(s'_ip / tau) / sum_{a != i} exp(s'_ia / tau)) over the p of i's class.

    Takes unit features [B, D], labels [B] and unit negatives [N, D], which only repel, and returns []. s' is
    the cosine. For two features of the same class it is min(cosine + margin, 1), so features within the
    margin no longer attract each other. A feature that is alone in its class contributes 0.
    """
    others = features if negatives is None else torch.cat([features, negatives])
    count = len(labels)
    itself = torch.eye(count, len(others), dtype=torch.bool, device=features.device)
    friends = F.pad(labels.unsqueeze(1) == labels, (0, len(others) - count)) & ~itself
    cosines = _at_least_float32(features @ others.T)
    shifted = torch.where(friends, (cosines + margin).clamp_max(1), cosines) / temperature
    # Not -inf, because a row that contains only itself would become NaN.
    logs = shifted.masked_fill(itself, torch.finfo(shifted.dtype).min).log_softmax(1)
    return -(logs.masked_fill(~friends, 0).sum(1) / friends.sum(1).clamp_min(1)).mean()


def unit_power(h: Tensor, eps: float = 1e-8) -> Tensor:
    """Forward-Forward's normalization h / (sqrt(mean h^2) + eps) over all but the first dimension of h."""
    length: Tensor = torch.linalg.vector_norm(h.flatten(1), dim=1)
    power = length / math.sqrt(h.shape[1:].numel()) + eps
    return h / power.view(-1, *(1,) * (h.dim() - 1))


def similarity_matrix(h: Tensor) -> Tensor:
    """Cosines between the samples of h [B, D], each minus its own mean -> [B, B] in [-1, 1]."""
    direction = project(h - h.mean(dim=1, keepdim=True))
    return (direction @ direction.T).clamp(-1, 1)


def similarity_matching_loss(h: Tensor, targets: Tensor) -> Tensor:
    """Local errors: mean squared difference between the similarities of h [B, D] and targets [B, K] -> []."""
    return F.mse_loss(_at_least_float32(similarity_matrix(h)), similarity_matrix(targets).detach())


def _at_least_float32(x: Tensor) -> Tensor:
    """x, in float32 if it is in half precision: exponentials and sums of a loss need the digits."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def ema_class_means(prototypes: Tensor, sums: Tensor, counts: Tensor, decay: float) -> Tensor:
    """v <- project(decay v + (1 - decay) project(sum)): prototypes as moving averages of class means.

    Takes unit prototypes [C, P, D], and sums [C, P, D] and counts [C, P] of the features assigned to each.
    Returns [C, P, D]. A prototype without samples, or whose new average has no direction, does not change.
    """
    moved = project(decay * prototypes + (1 - decay) * project(sums))
    has_moved = (counts > 0).unsqueeze(-1) & moved.ne(0).any(dim=-1, keepdim=True)
    return torch.where(has_moved, moved, prototypes)


def simplex_etf(classes: int, dim: int, generator: torch.Generator | None = None) -> Tensor:
    """Unit vectors [classes, dim] that are maximally apart: every pairwise cosine is -1/(classes - 1).

    They are the corners of a regular simplex around the origin, randomly rotated.
    """
    if classes < 2:
        raise ValueError(f"A simplex of prototypes needs at least 2 classes, but got {classes}.")
    if dim < classes - 1:
        raise ValueError(
            f"No simplex of {classes} prototypes exists in {dim} dimensions: use {classes - 1} or more."
        )
    # Vectors that sum to zero span C - 1 dimensions. The rows of an orthonormal basis there are the corners.
    spanning = torch.eye(classes, dtype=torch.float64)
    spanning[:, 0] = 1
    corners = torch.linalg.qr(spanning).Q[:, 1:] * math.sqrt(classes / (classes - 1))
    turn = torch.linalg.qr(torch.randn(dim, classes - 1, dtype=torch.float64, generator=generator)).Q
    return torch.matmul(corners, turn.T).to(torch.get_default_dtype())


def information_bound(scores: Tensor, labels: Tensor, scale: float = 1.0) -> Tensor:
    """Eqs. 12-15: I(z; y) >= H(y) - CE(softmax(scale g), y) in bits, of scores [B, C], labels [B] -> [].

    This is a lower bound on the information about the class. H(y) is the entropy of the given labels. A
    negative value means that at this scale the scores predict worse than the label frequencies. The bound
    holds in expectation, so use data on which neither the scores nor the scale were fitted.
    """
    frequencies = torch.bincount(labels) / labels.numel()
    nats: Tensor = torch.special.entr(frequencies).sum() - F.cross_entropy(scale * scores, labels)
    return nats / math.log(2)


def fit_scale(scores: Tensor, labels: Tensor, doubt: float = 0.0) -> float:
    """The scale >= 0 that minimizes CE(softmax(scale g), y) over scores [B, C], labels [B].

    If every label has the highest score, there is no finite minimum, and the result is a large finite scale.
    `doubt` > 0 assumes that this share of the samples could have any label. It keeps the scale moderate when
    there are few samples.
    """
    margins = (scores - scores.gather(1, labels.unsqueeze(1))).detach().cpu().double()

    def slope(scale: float) -> float:
        expected = (torch.softmax(scale * margins, dim=1) * margins).sum(1) - doubt * margins.mean(1)
        return float(expected.mean())

    # The cross-entropy is convex in the scale: its slope only rises and ends at zero or above, so bisect.
    if slope(0.0) >= 0:
        return 0.0
    low, high = 0.0, 1.0
    while slope(high) < 0:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return high
