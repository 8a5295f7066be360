"""A cache for the outputs of frozen blocks, which are computed once for all epochs of a stage."""

import mmap
import os
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from hff.batch import Batch
from hff.methods import Method

GIGABYTE = 1e9


class FeatureCache:
    """Caches the features of samples: the output of the frozen blocks, which is the input of the next block.

    The features of a sample are computed in the first batch that contains it. If the features of a split do
    not fit into the remaining memory, they are kept in a temporary file, or computed every time.

    Args:
        method: the method that computes the features.
        depth: the number of frozen blocks.
        samples: the number of samples of each split to cache; these must be the same in every epoch.
        gigabytes: memory limit for all splits together.
        folder: where to create the temporary files; None for no files.
    """

    def __init__(
        self,
        method: Method,
        depth: int,
        samples: Mapping[str, int],
        gigabytes: float,
        folder: Path | None = None,
    ) -> None:
        self.method = method
        self.depth = depth
        self.samples = samples
        self.bytes_left = gigabytes * GIGABYTE
        self.folder = folder
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
            features = cached[batch.index.to(cached.device)].to(batch.x.device)
            return replace(batch, x=features, depth=self.depth)
        features = self.method.frozen_features(batch.x, self.depth)
        if split not in self.cached:
            self._reserve(split, features)
        if (cached := self.cached[split]) is not None:
            cached[batch.index.to(cached.device)] = features.to(cached.device)
            self.known[split][batch.index] = True
        return replace(batch, x=features, depth=self.depth)

    def _reserve(self, split: str, features: Tensor) -> None:
        shape = (self.samples[split], *features.shape[1:])
        size = shape[0] * features[0].numel() * features.element_size()
        self.cached[split] = None
        if size <= self.bytes_left:
            self.bytes_left -= size
            self.cached[split] = features.new_empty(shape)
        elif self.folder is not None:
            stored = on_disk(size, features.dtype, self.folder)
            self.cached[split] = None if stored is None else stored.view(shape)
        if self.cached[split] is not None:
            self.known[split] = torch.zeros(shape[0], dtype=torch.bool)


def on_disk(size: int, dtype: torch.dtype, folder: Path) -> Tensor | None:
    """A tensor of `size` bytes in a memory-mapped temporary file; None, with a warning, if it does not fit.

    The file has no name, so the system removes it when the tensor is gone or the process is killed.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            _allocate(file, size)
            # The mapping remains after the file is closed.
            return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=dtype)
    except OSError as error:
        warnings.warn(
            f"{folder} has no room for {size / GIGABYTE:.3g} GB of features ({error.strerror or error}), so "
            "they are computed in every epoch; free some space, or set cache_location to memory.",
            stacklevel=2,
        )
        return None


def _allocate(file: IO[bytes], size: int) -> None:
    """Reserves the bytes of a file; otherwise a full disk would kill the process when it writes a page."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    zeros = bytes(2**20)
    for start in range(0, size, len(zeros)):
        file.write(zeros[: size - start])
    file.flush()
