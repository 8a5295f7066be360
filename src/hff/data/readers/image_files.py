"""Examples that stay in their image files until a batch asks for them."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from hff.data.examples import Examples
from hff.data.readers.images import open_image, pixels, with_margin

AHEAD = 2
"""Batches that are decoded while the network is busy with an earlier one."""


class ImageFileExamples(Examples):
    """Image files, decoded when they are fetched.

    Threads decode them, for Pillow lets go of the interpreter's lock meanwhile: nothing is copied between
    processes, and what is fetched depends on the index alone, so an epoch can begin anywhere. An image comes
    with a margin around the window that a network sees; the augmentation draws the window's place.
    """

    def __init__(
        self, files: Sequence[str], labels: Tensor, shape: tuple[int, int, int], margin: float = 1.0
    ) -> None:
        """files: one for each label [N]; shape: [C, H, W] of the window; margin: its relative surrounding."""
        self.files = files
        self.labels = labels
        self.shape = shape
        self.margin = margin

    def fetch(self, index: Tensor) -> Tensor:
        return next(self.stream([index]))

    def subset(self, index: Tensor) -> "ImageFileExamples":
        files = [self.files[i] for i in index.tolist()]
        return ImageFileExamples(files, self.labels[index], self.shape, self.margin)

    def stream(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        pool = ThreadPoolExecutor(min(16, os.cpu_count() or 1), thread_name_prefix="decode")
        waiting: deque[list[Future[Tensor]]] = deque()
        try:
            for index in indices:
                waiting.append([pool.submit(self._decode, i) for i in index.tolist()])
                if len(waiting) > AHEAD:
                    yield _together(waiting.popleft())
            while waiting:
                yield _together(waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _decode(self, i: int) -> Tensor:
        channels, height, width = self.shape
        file = self.files[i]
        image = open_image(file, channels, (height, width), self.margin)
        return pixels(with_margin(image, (height, width), self.margin))


def _together(decoded: list[Future[Tensor]]) -> Tensor:
    return torch.stack([one.result() for one in decoded])
