"""Examples that are decoded from image files when a batch needs them."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from hff.data.examples import Examples
from hff.data.readers.images import open_image, pixels, with_margin

AHEAD = 2
"""The number of batches that are decoded ahead."""


class ImageFileExamples(Examples):
    """Image files that are decoded when they are fetched.

    Threads decode them, because Pillow releases the interpreter lock and nothing is then copied between
    processes. The result depends only on the index, so an epoch can be resumed anywhere. Images have a
    margin around the window that a network sees, and the augmentation draws the position of the window.

    Args:
        files: one path for each label.
        labels: classes, int64 [N].
        shape: the shape [C, H, W] of the window.
        margin: the size of a stored image relative to the window.
    """

    def __init__(
        self, files: Sequence[str], labels: Tensor, shape: tuple[int, int, int], margin: float = 1.0
    ) -> None:
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
                    yield _stacked(waiting.popleft())
            while waiting:
                yield _stacked(waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _decode(self, i: int) -> Tensor:
        channels, height, width = self.shape
        file = self.files[i]
        image = open_image(file, channels, (height, width), self.margin)
        return pixels(with_margin(image, (height, width), self.margin))


def _stacked(decoded: list[Future[Tensor]]) -> Tensor:
    return torch.stack([image.result() for image in decoded])
