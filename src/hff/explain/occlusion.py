"""Occlusion (Zeiler and Fergus 2014): how much a score falls when a part of the image is covered."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hff.explain.contributions import Choose
from hff.methods import Method

PATCHES = 7
"""The number of patches along a side of the image; neighbors overlap by half."""


def occlusion(
    method: Method, x: Tensor, choose: Choose, patches: int = PATCHES
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Yields (layer, scores [B, C], classes [B], map [B, patches, patches]) for every layer with scores.

    A patch is covered by the mean of the training images. The map is the fall of the score. It is negative
    where the score rises.

    Args:
        method: the method, in evaluation mode.
        x: the images [B, C, H, W], after preprocessing.
        choose: the class to explain, from the number of a layer and its scores.
        patches: the number of patches along a side.
    """
    whole = dict(method.layer_scores(x))
    classes = {layer: choose(layer, scores) for layer, scores in whole.items()}
    falls = {layer: torch.zeros(len(x), patches, patches, device=x.device) for layer in whole}
    rows, columns = (_windows(side, patches) for side in x.shape[2:])
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            covered = x.clone()
            covered[:, :, row, column] = 0
            for layer, scores in method.layer_scores(covered):
                chosen = classes[layer].unsqueeze(1)
                falls[layer][:, i, j] = (whole[layer] - scores).gather(1, chosen).squeeze(1)
    for layer, scores in whole.items():
        yield layer, scores, classes[layer], falls[layer]


def _windows(side: int, patches: int) -> list[slice]:
    """Windows of equal size along a side, each centered in one of `patches` equal parts and twice as long."""
    part = side / patches
    half = max(1.0, part)
    middles = [(i + 0.5) * part for i in range(patches)]
    return [slice(max(0, math.floor(m - half)), min(side, math.ceil(m + half))) for m in middles]
