"""Labeled examples: the interface, and examples in memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
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
