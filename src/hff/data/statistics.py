"""Mean, standard deviation and brightness of examples, a fingerprint, and resizing."""

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from hff.data.examples import Examples, TensorExamples
from hff.errors import UserError

CHUNK = 128
"""The number of examples that are processed at a time."""

MAX_FILES = 20_000
"""If there are more image files than this, only every k-th is used, because decoding is slow."""

MAX_MEASURED = 1000
"""If there are more images than this, the brightness of only every k-th is measured."""

COMPARED = 16
"""The number of examples of each split whose values are part of a fingerprint."""


def channel_statistics(examples: Examples, scale: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of value / scale per channel of images, or per column of a table."""
    step = 1 if isinstance(examples, TensorExamples) else -(-len(examples) // MAX_FILES)
    if examples.fetch(torch.tensor([0])).dtype is torch.uint8:
        mean, std = _of_bytes(examples.in_order(CHUNK, step))
    else:
        values = torch.cat(list(examples.in_order(CHUNK))).double().transpose(0, 1).flatten(1)
        mean, std = _of_floats(values)
    # A constant channel becomes zero instead of a division by zero.
    std = torch.where(std > 0, std, scale)
    return tuple((mean / scale).tolist()), tuple((std / scale).tolist())


def brightness(images: Tensor, scale: float) -> Tensor:
    """The mean of value / scale of each image [N, C, H, W], as [N]."""
    return images.flatten(1).double().mean(1) / scale


def brightness_range(examples: Examples, scale: float) -> tuple[float, float]:
    """The lowest and the highest brightness of images."""
    step = -(-len(examples) // MAX_MEASURED)
    found = torch.cat([brightness(images, scale) for images in examples.in_order(CHUNK, step)])
    return float(found.min()), float(found.max())


def fingerprint(splits: Sequence[Examples | None]) -> str:
    """A hash of all labels and of a few examples of each split, to recognize the same data elsewhere."""
    state = hashlib.sha256()
    for split in splits:
        if split is None or len(split) == 0:
            state.update(b"none")
            continue
        state.update(split.labels.numpy().tobytes())
        chosen = torch.linspace(0, len(split) - 1, min(COMPARED, len(split))).long()
        state.update(split.fetch(chosen).contiguous().numpy().tobytes())
    return state.hexdigest()


def refuse_huge_values(examples: Examples | None, mean: Sequence[float], std: Sequence[float]) -> None:
    """Refuses a table with values that overflow when they are normalized with this mean and deviation."""
    if not isinstance(examples, TensorExamples) or examples.x.ndim != 2:
        return
    middle, spread = torch.tensor([mean, std], dtype=torch.float64)
    for x in examples.in_order(CHUNK):
        rows, columns = torch.nonzero(~(x / spread - middle / spread).float().isfinite(), as_tuple=True)
        if len(rows):
            value = float(x[rows[0], columns[0]])
            raise UserError(
                f"Column {int(columns[0])} of the table holds {value:g}, which is far too large beside "
                "its other values; rescale the column, or remove the row."
            )


def _of_floats(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each row of values [C, N] in float64, large or small."""
    mean, std = values.mean(1), values.std(1, correction=0)
    # Squares of values above 1e154 are infinite, and those below 1e-162 are zero. Only such rows are scaled,
    # so that the numbers of all others stay as they are.
    lost = ~(torch.isfinite(mean) & torch.isfinite(std)) | ((std == 0) & (values.amax(1) > values.amin(1)))
    for row in torch.nonzero(lost).flatten().tolist():
        largest = values[row].abs().max()
        scaled = values[row] / largest
        mean[row], std[row] = scaled.mean() * largest, scaled.std(correction=0) * largest
    # The mean of a constant row may differ from its value by a rounding error, which can be huge.
    constant = values.amax(1) == values.amin(1)
    mean, std = torch.where(constant, values[:, 0], mean), torch.where(constant, 0.0, std)
    # The inverse of a standard deviation below the smallest normal number is infinite.
    return mean, torch.where(std < torch.finfo(torch.float64).tiny, 0.0, std)


def _of_bytes(chunks: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per channel [C] of images [B, C, ...], from a histogram of the bytes."""
    counts = torch.zeros(1, 256, dtype=torch.float64)
    for images in chunks:
        channels = images.transpose(0, 1).flatten(1)
        counts = counts + torch.stack([torch.bincount(channel, minlength=256) for channel in channels])
    share = counts / counts.sum(1, keepdim=True)
    value = torch.arange(256, dtype=torch.float64)
    mean = share @ value
    variance = (share * (value - mean[:, None]).square()).sum(1)
    return mean, variance.sqrt()


def resized(examples: Examples, size: tuple[int, int]) -> TensorExamples:
    """Images resized to the height and width `size`, in memory."""
    parts = [
        interpolate(stored, size, mode="bilinear", antialias=True, align_corners=False)
        for stored in examples.in_order(CHUNK)
    ]
    return TensorExamples(torch.cat(parts), examples.labels)
