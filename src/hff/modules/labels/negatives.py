"""Wrong labels for negatives, drawn among the other classes, so they are never the true label."""

import torch
from torch import Tensor

from hff.errors import UserError


def wrong_labels(y: Tensor, classes: int, draws: Tensor) -> Tensor:
    """A wrong label for each true label y [B], uniform over the others, from draws [B] in [0, 1) -> [B]."""
    _check_classes(classes)
    # In lower precision a draw may be rounded to 1, which would be one past the last class.
    rank = (draws * (classes - 1)).long().clamp_max(classes - 2)
    return _skip_true(rank, y)


def hard_wrong_labels(y: Tensor, logits: Tensor, draws: Tensor) -> Tensor:
    """A wrong label for each true label y [B], drawn from the softmax of the other classes' logits -> [B].

    Takes logits [B, C] and draws [B] in [0, 1), which are looked up in the cumulative probabilities. An
    infinite logit counts as the largest number of its sign, so a class can always be drawn.
    """
    classes = logits.shape[1]
    _check_classes(classes)
    others = _skip_true(torch.arange(classes - 1, device=y.device).expand(len(y), -1), y.unsqueeze(1))
    finite = torch.nan_to_num(logits.detach().float().gather(1, others))
    cumulative = torch.softmax(finite, dim=1).cumsum(dim=1)
    # Because of rounding the sum is not exactly 1, so the draws are scaled to it. A draw that was rounded up
    # must not land behind the last class with a nonzero probability.
    total = cumulative[:, -1:]
    last = (cumulative < total).sum(dim=1, keepdim=True)
    rank = (cumulative <= draws.unsqueeze(1) * total).sum(dim=1, keepdim=True)
    return others.gather(1, torch.minimum(rank, last)).squeeze(1)


def _skip_true(rank: Tensor, y: Tensor) -> Tensor:
    """Labels with these ranks among all labels except y; the two shapes broadcast."""
    return rank + (rank >= y).long()


def _check_classes(classes: int) -> None:
    if classes < 2:
        raise UserError(f"Wrong labels need at least 2 classes, but there is {classes}: use other data.")
