"""A cache for the outputs of frozen blocks, which are computed once for all epochs of a stage."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from hff.batch import Batch
from hff.methods import Method

GIGABYTE = 1e9


class FeatureCache:
    """Caches the features of samples: the output of the frozen blocks, which is the input of the next block.

    The features of a sample are computed in the first batch that contains it. If the features of a split do
    not fit into the remaining memory, they are not cached but computed every time.

    Args:
        method: the method that computes the features.
        depth: the number of frozen blocks.
        samples: the number of samples of each split to cache; these must be the same in every epoch.
        gigabytes: memory limit for all splits together.
    """

    def __init__(self, method: Method, depth: int, samples: Mapping[str, int], gigabytes: float) -> None:
        self.method = method
        self.depth = depth
        self.samples = samples
        self.bytes_left = gigabytes * GIGABYTE
        self.cached: dict[str, Tensor | None] = {}
        """The features [N, ...] of each split, or None if they do not fit."""
        self.known: dict[str, Tensor] = {}
        """For each split, which samples have been computed [N]."""

    def __contains__(self, split: str) -> bool:
        return split in self.samples

    @torch.no_grad()
    def attach(self, batch: Batch, split: str) -> Batch:
        """Replaces the inputs of a batch from this split by their features."""
        if split not in self.samples:
            return batch
        if split in self.known and bool(self.known[split][batch.index].all()):
            cached = self.cached[split]
            assert cached is not None
            return replace(batch, x=cached[batch.index.to(cached.device)], depth=self.depth)
        features = self.method.frozen_features(batch.x, self.depth)
        if split not in self.cached:
            self._reserve(split, features)
        if (cached := self.cached[split]) is not None:
            cached[batch.index.to(cached.device)] = features
            self.known[split][batch.index] = True
        return replace(batch, x=features, depth=self.depth)

    def _reserve(self, split: str, features: Tensor) -> None:
        samples = self.samples[split]
        size = samples * features[0].numel() * features.element_size()
        self.cached[split] = None
        if size <= self.bytes_left:
            self.bytes_left -= size
            self.cached[split] = features.new_empty(samples, *features.shape[1:])
            self.known[split] = torch.zeros(samples, dtype=torch.bool)
