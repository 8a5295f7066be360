"""Examples that are decoded from image files when a batch needs them."""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import torch
from torch import Tensor

from hff.data.examples import Examples, TensorExamples
from hff.data.readers.images import BadImage, open_image, pixels, with_margin

AHEAD = 2
"""The number of batches that are decoded ahead."""

DECODED_AT_ONCE = 64
"""The number of images that are decoded together when all of them are."""


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
        with closing(self._decoding(indices)) as batches:
            for batch in batches:
                yield torch.stack([image.result() for image in batch])

    def attempts(self) -> Iterator[Tensor | BadImage]:
        """Each image [C, H, W] in order, or the error if it cannot be decoded."""
        index = torch.arange(len(self)).split(DECODED_AT_ONCE)
        with closing(self._decoding(index)) as batches:
            for image in (image for batch in batches for image in batch):
                try:
                    yield image.result()
                except BadImage as error:
                    yield error

    def decode_all(self) -> tuple[TensorExamples, list[BadImage]]:
        """All images that can be decoded, in memory, and the errors of the others."""
        images, kept, bad = [], [], []
        for i, result in enumerate(self.attempts()):
            if isinstance(result, BadImage):
                bad.append(result)
            else:
                images.append(result)
                kept.append(i)
        stored = torch.stack(images) if images else torch.empty(0)
        return TensorExamples(stored, self.labels[kept]), bad

    def _decoding(self, indices: Iterable[Tensor]) -> Generator[list[Future[Tensor]], None, None]:
        """The images of each index, which threads decode ahead."""
        pool = ThreadPoolExecutor(min(16, os.cpu_count() or 1), thread_name_prefix="decode")
        waiting: deque[list[Future[Tensor]]] = deque()
        try:
            for index in indices:
                waiting.append([pool.submit(self._decode, i) for i in index.tolist()])
                if len(waiting) > AHEAD:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            pool.shutdown(cancel_futures=True)

    def _decode(self, i: int) -> Tensor:
        channels, height, width = self.shape
        file = self.files[i]
        image = open_image(file, channels, (height, width), self.margin)
        return pixels(with_margin(image, (height, width), self.margin))
