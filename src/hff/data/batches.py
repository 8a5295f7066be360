"""Mini-batches of an epoch, which are the same if the epoch is resumed in the middle."""

from collections.abc import Iterator
from numbers import Integral
from typing import Self

import torch
from torch import Tensor

from hff.batch import Batch
from hff.data.augmentation import DRAWS, Augmentation
from hff.data.examples import Examples
from hff.data.preprocessing import Preprocessing
from hff.data.splits import balanced_order
from hff.errors import UserError, quoted
from hff.randomness import Key, permutation, uniform


class Batches:
    """The mini-batches of each epoch. Order and augmentation depend only on the key and the epoch.

    Args:
        examples: the examples to draw from.
        preprocessing: turns stored values into network inputs.
        batch_size: the number of samples in a batch.
        key: the random key, (seed, stage).
        augmentation: the augmentation of each sample.
        shuffle: whether each epoch has its own random order.
        drop_last: whether a last batch that is not full is dropped.
        views: the number of augmented versions of each sample in a batch.
        balanced: whether every class is drawn equally often in an epoch; its length stays the same.
    """

    def __init__(
        self,
        examples: Examples,
        preprocessing: Preprocessing,
        batch_size: int,
        key: Key,
        augmentation: Augmentation,
        shuffle: bool = True,
        drop_last: bool = False,
        views: int = 1,
        balanced: bool = False,
    ) -> None:
        if not _is_whole(batch_size) or batch_size < 1:
            raise UserError(f"The batch size must be a whole number of at least 1, not {quoted(batch_size)}.")
        if drop_last and len(examples) < batch_size:
            raise UserError(
                f"{len(examples)} examples do not fill a batch of {batch_size}; use smaller batches."
            )
        self.examples = examples
        self.preprocessing = preprocessing
        self.batch_size = batch_size
        self.key = key
        self.augmentation = augmentation
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.views = views
        self.balanced = balanced

    @classmethod
    def in_order(cls, examples: Examples, preprocessing: Preprocessing, batch_size: int) -> Self:
        """Batches for evaluation: each example once, in order, without augmentation."""
        return cls(examples, preprocessing, batch_size, (0, "evaluation"), Augmentation.none(), shuffle=False)

    def __len__(self) -> int:
        """The number of steps per epoch."""
        full, remainder = divmod(len(self.examples), self.batch_size)
        return full if self.drop_last or remainder == 0 else full + 1

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, starting at step `start`."""
        order = self._order(epoch)
        steps = range(start, len(self))
        indices = [order[step * self.batch_size : (step + 1) * self.batch_size] for step in steps]
        for step, index, stored in zip(steps, indices, self.examples.stream(indices), strict=True):
            # A balanced epoch may contain a sample several times, each with its own augmentation.
            sample = torch.arange(len(index)) + step * self.batch_size if self.balanced else index
            x, *other_views = (self._view(stored, sample, epoch, view) for view in range(self.views))
            yield Batch(x, self.examples.labels[index], index, (*self.key, epoch, step), tuple(other_views))

    def _order(self, epoch: int) -> Tensor:
        """The samples of an epoch [N], in order."""
        if not self.shuffle:
            return torch.arange(len(self.examples))
        key = (*self.key, epoch, "order")
        return (
            balanced_order(self.examples.labels, *key)
            if self.balanced
            else permutation(len(self.examples), *key)
        )

    def _view(self, stored: Tensor, sample: Tensor, epoch: int, view: int) -> Tensor:
        """One augmented and preprocessed version of the stored samples [B, ...]."""
        draws = None
        if self.augmentation != Augmentation.none():
            purpose = ("augmentation", view) if view else ("augmentation",)
            draws = uniform(sample, DRAWS, *self.key, epoch, *purpose)
        return self.preprocessing(self.augmentation(stored, draws, self.preprocessing.size))


def _is_whole(number: object) -> bool:
    # The numbers of NumPy count as well.
    return isinstance(number, Integral) and not isinstance(number, bool)
