"""Wrong labels for negatives: drawn among the other classes, so that none can be the true one."""

import torch
from torch import Tensor

from hff.errors import UserError


def wrong_labels(y: Tensor, classes: int, draws: Tensor) -> Tensor:
    """A wrong label for each true label y [B], uniform over the others, from draws [B] in [0, 1) -> [B]."""
    _check_classes(classes)
    # A draw that was rounded to 1 in lower precision would be one past the last of the others.
    rank = (draws * (classes - 1)).long().clamp_max(classes - 2)
    return _skip_true(rank, y)


def hard_wrong_labels(y: Tensor, logits: Tensor, draws: Tensor) -> Tensor:
    """A wrong label for each true label y [B], drawn from the softmax of the other classes' logits -> [B].

    Takes logits [B, C] and draws [B] in [0, 1), which are looked up in the cumulative probabilities. An
    infinite logit counts as the largest number of its sign, so there is always a class to draw.
    """
    classes = logits.shape[1]
    _check_classes(classes)
    others = _skip_true(torch.arange(classes - 1, device=y.device).expand(len(y), -1), y.unsqueeze(1))
    finite = torch.nan_to_num(logits.detach().float().gather(1, others))
    cumulative = torch.softmax(finite, dim=1).cumsum(dim=1)
    # Rounding leaves the sum a little off 1, so the draws are scaled to it; one that was rounded up must not
    # land behind the last class that has any probability.
    total = cumulative[:, -1:]
    last = (cumulative < total).sum(dim=1, keepdim=True)
    rank = (cumulative <= draws.unsqueeze(1) * total).sum(dim=1, keepdim=True)
    return others.gather(1, torch.minimum(rank, last)).squeeze(1)


def _skip_true(rank: Tensor, y: Tensor) -> Tensor:
    """The labels that have these ranks among all labels but y; the two shapes broadcast."""
    return rank + (rank >= y).long()


def _check_classes(classes: int) -> None:
    if classes < 2:
        raise UserError(f"Wrong labels need at least 2 classes, but there is {classes}: take other data.")
