"""The accuracy of every layer, as cheaply as it can be had: the loop asks for it after each epoch."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import Method


def layer_accuracy(
    method: Method, batches: Iterable[Batch], device: torch.device | str
) -> tuple[dict[int, float], float]:
    """The share of samples that each layer classifies correctly, and the final read-out.

    Taken in evaluation mode and without gradients.
    """
    correct: dict[int, torch.Tensor] = {}
    correct_at_last = torch.tensor(0)
    count = 0
    with evaluation_mode(method):
        for batch in batches:
            batch = batch.to(torch.device(device))
            count += len(batch.y)
            scores = dict(method.layer_scores(batch.x, batch.depth))
            # Summed where the scores are: asking for each number would wait for the device every time.
            for layer, each in scores.items():
                correct[layer] = correct.get(layer, 0) + (each.argmax(1) == batch.y).sum()
            correct_at_last = correct_at_last + (method.combine_scores(scores).argmax(1) == batch.y).sum()
    if count == 0:
        raise UserError("There is no sample to measure the accuracy on; give a split that is not empty.")
    return {layer: int(hits) / count for layer, hits in sorted(correct.items())}, int(correct_at_last) / count


@contextmanager
def evaluation_mode(method: Method) -> Iterator[None]:
    """No gradients, every module in evaluation mode; afterwards each module is in the mode it was in."""
    modes = {module: module.training for module in method.modules()}
    method.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
