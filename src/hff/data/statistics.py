"""Means, spreads and sizes of stored examples."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from hff.data.examples import Examples, TensorExamples

CHUNK = 128
"""How many examples are turned into floats at once."""

AT_MOST = 20_000
"""Channel statistics of more examples than this are those of every k-th example: files take long to read."""


def channel_statistics(examples: Examples, scale: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of value / scale per channel of images, or per column of a table.

    In two passes: a column with a mean far above its spread would lose the spread in a sum of squares.
    """
    in_memory = isinstance(examples, TensorExamples)
    step = 1 if in_memory else -(-len(examples) // AT_MOST)
    mean = _average(examples, step, torch.zeros(1, dtype=torch.float64), 1)
    variance = _average(examples, step, mean, 2)
    std = variance.sqrt() / scale
    # A constant channel carries nothing; it becomes zero rather than a division by zero.
    std = torch.where(std > 0, std, 1.0)
    return tuple((mean / scale).tolist()), tuple(std.tolist())


def _average(examples: Examples, step: int, center: Tensor, power: int) -> Tensor:
    """The mean over examples and pixels of (value - center) ** power, per channel [C]."""
    total, count = torch.zeros(1, dtype=torch.float64), 0
    for stored in examples.in_order(CHUNK, step):
        values = stored.double().flatten(2) if stored.ndim > 2 else stored.double()[:, :, None]
        total = total + (values - center[:, None]).pow(power).sum((0, 2))
        count += values.shape[0] * values.shape[2]
    return total / count


def resized(examples: Examples, size: int) -> TensorExamples:
    """Images in memory, brought to [C, size, size]."""
    parts = [
        interpolate(stored, (size, size), mode="bilinear", antialias=True, align_corners=False)
        for stored in examples.in_order(CHUNK)
    ]
    return TensorExamples(torch.cat(parts), examples.labels)
