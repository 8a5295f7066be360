"""Labeled examples: the interface, and examples in memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Self

import torch
from torch import Tensor

from hff.errors import UserError


class Examples(ABC):
    """Labeled examples that are fetched by index."""

    labels: Tensor
    """The class of each example, int64 [N]."""

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def fetch(self, index: Tensor) -> Tensor:
        """The stored values of the examples in index [B]: bytes or floats [B, ...], not preprocessed."""

    @abstractmethod
    def subset(self, index: Tensor) -> Self:
        """The examples in index [M], in that order."""

    def with_labels(self, labels: Tensor) -> Self:
        """The same examples with other labels, int64 [N]."""
        changed = copy(self)
        changed.labels = labels
        return changed

    def stream(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        """Calls `fetch` for each index. A subclass with slow access may fetch ahead."""
        return map(self.fetch, indices)

    def in_order(self, chunk: int, step: int = 1) -> Iterator[Tensor]:
        """The stored values of all examples, or of every step-th one, `chunk` at a time."""
        index = torch.arange(0, len(self), step)
        return self.stream(index[i : i + chunk] for i in range(0, len(index), chunk))


class TensorExamples(Examples):
    """Examples in memory.

    Args:
        x: stored values [N, ...].
        y: classes, integers [N].
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        if len(x) != len(y):
            raise UserError(
                f"There are {len(x)} examples but {len(y)} labels; give one label to each example."
            )
        self.x = x
        self.labels = y.to(torch.int64)

    def fetch(self, index: Tensor) -> Tensor:
        return self.x[index]

    def subset(self, index: Tensor) -> "TensorExamples":
        return TensorExamples(self.x[index], self.labels[index])


class JoinedExamples(Examples):
    """Several sets of examples as one.

    Args:
        parts: the examples; their stored values have the same shape.
        chosen: the examples to keep, as positions in the joined order [N]; None for all.
    """

    def __init__(self, parts: Sequence[Examples], chosen: Tensor | None = None) -> None:
        self.parts = tuple(parts)
        labels = torch.cat([part.labels for part in self.parts])
        self.chosen = torch.arange(len(labels)) if chosen is None else chosen
        self.labels = labels[self.chosen]

    def fetch(self, index: Tensor) -> Tensor:
        position, start = self.chosen[index], 0
        order, values = [], []
        for part in self.parts:
            own = torch.nonzero((position >= start) & (position < start + len(part))).flatten()
            if len(own):
                order.append(own)
                values.append(part.fetch(position[own] - start))
            start += len(part)
        return torch.cat(values)[torch.cat(order).argsort()]

    def subset(self, index: Tensor) -> "JoinedExamples":
        return JoinedExamples(self.parts, self.chosen[index])
