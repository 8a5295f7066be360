"""What blocks at rest make of each sample, computed once for all epochs of a stage."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from hff.batch import Batch
from hff.methods import Method

GIGABYTE = 1e9


class Digests:
    """The digests of the samples of some splits, each computed in the batch in which its sample first comes.

    A split whose digests do not fit into the memory that is left is not kept: they are computed every time.

    Args:
        method: what digests.
        samples: the splits whose samples never change, with their sizes; others are left alone.
        gigabytes: the memory that all of them may take.
    """

    def __init__(self, method: Method, samples: Mapping[str, int], gigabytes: float) -> None:
        self.method = method
        self.samples = samples
        self.left = gigabytes * GIGABYTE
        """Bytes that may still be taken."""
        self.kept: dict[str, Tensor | None] = {}
        """[N, D] for each split, or None where it does not fit."""
        self.known: dict[str, Tensor] = {}
        """Which of them have been computed [N]."""

    @torch.no_grad()
    def attach(self, batch: Batch, split: str) -> Batch:
        """The batch with the digests of its samples, which are of this split."""
        if split not in self.samples:
            return batch
        if split in self.known and bool(self.known[split][batch.index].all()):
            kept = self.kept[split]
            assert kept is not None
            return replace(batch, digest=kept[batch.index.to(kept.device)])
        digest = self.method.digest(batch.x)
        if split not in self.kept:
            self._reserve(split, digest)
        if (kept := self.kept[split]) is not None:
            kept[batch.index.to(kept.device)] = digest
            self.known[split][batch.index] = True
        return replace(batch, digest=digest)

    def _reserve(self, split: str, digest: Tensor) -> None:
        samples = self.samples[split]
        size = samples * digest[0].numel() * digest.element_size()
        self.kept[split] = None
        if size <= self.left:
            self.left -= size
            self.kept[split] = digest.new_empty(samples, *digest.shape[1:])
            self.known[split] = torch.zeros(samples, dtype=torch.bool)
