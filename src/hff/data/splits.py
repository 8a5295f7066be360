"""Splits that keep the share of each class."""

import math

import torch
from torch import Tensor

from hff.randomness import permutation

TEST_SHARE = 0.2
"""How much of a data set is set apart for testing if it comes without a test split."""


def stratified(labels: Tensor, count: int, *key: int | str) -> tuple[Tensor, Tensor]:
    """Which examples stay and which `count` are taken, both ascending.

    Every example gets its random rank within its class, as a share of the class; the lowest ranks are taken.
    So each class gives the same share, and a larger count takes all that a smaller one takes.

    Args:
        labels: classes [N].
        count: how many to take.
        key: what the choice depends on.

    Returns:
        The indices that stay [N - count] and those taken [count].
    """
    order = permutation(len(labels), *key)
    by_class = order[torch.argsort(labels[order], stable=True)]
    sizes = torch.bincount(labels)
    first = sizes.cumsum(0) - sizes
    ordered = labels[by_class]
    rank = torch.arange(len(labels), dtype=torch.float64) - first[ordered] + 0.5
    share = torch.empty_like(rank)
    share[by_class] = rank / sizes[ordered]
    # Equal shares are common, and the random order settles them.
    chosen = order[torch.argsort(share[order], stable=True)]
    return chosen[count:].sort().values, chosen[:count].sort().values


def carve_test(labels: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Which examples are for training and which fifth is for testing: the same fifth whatever the seed."""
    return stratified(labels, math.ceil(TEST_SHARE * len(labels)), name, "test")
