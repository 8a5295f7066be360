"""The accuracy of every layer, at low cost: the training loop measures it after each epoch."""

from collections.abc import Iterable

import torch
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import Method
from hff.methods.modes import evaluation_mode as evaluation_mode


def layer_accuracy(
    method: Method, batches: Iterable[Batch], device: torch.device | str
) -> tuple[dict[int, float], float]:
    """The accuracy of each layer by number, and the accuracy of the final read-out.

    Both are measured in evaluation mode and without gradients.
    """
    correct: dict[int, torch.Tensor] = {}
    correct_final = torch.tensor(0)
    count = 0
    with evaluation_mode(method):
        for batch in batches:
            batch = batch.to(torch.device(device))
            count += len(batch.y)
            scores = dict(method.layer_scores(batch.x, batch.depth))
            # Summed on the device, since reading each number would synchronize with the device every time.
            for layer, each in scores.items():
                correct[layer] = correct.get(layer, 0) + hits(each, batch.y).sum()
            correct_final = correct_final + hits(method.combine_scores(scores), batch.y).sum()
    if count == 0:
        raise UserError("There are no samples to measure the accuracy on; use a split that is not empty.")
    return {layer: int(right) / count for layer, right in sorted(correct.items())}, int(correct_final) / count


def hits(scores: Tensor, labels: Tensor) -> Tensor:
    """Whether the label has the highest score: scores [B, C], labels [B] -> [B].

    Scores that are not finite predict no class, so they are never right.
    """
    return (scores.argmax(1) == labels) & is_scored(scores)


def is_scored(scores: Tensor) -> Tensor:
    """Whether all scores of a sample are finite: [B, C] -> [B]."""
    return scores.isfinite().all(1)
