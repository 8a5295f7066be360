"""Splits that keep the proportion of each class."""

import math
from numbers import Real

import torch
from torch import Tensor

from hff.data.examples import Examples
from hff.errors import UserError, require_seed
from hff.randomness import permutation

TEST_SHARE = 0.2
"""The share of examples used for testing if a data set does not have a test split."""


def stratified(labels: Tensor, count: int, *key: int | str) -> tuple[Tensor, Tensor]:
    """Draws `count` examples, the same share of each class.

    Each example gets a random rank within its class, divided by the size of the class, and the examples with
    the lowest ranks are drawn. A larger count therefore includes all examples of a smaller one.

    Args:
        labels: classes [N].
        count: the number of examples to draw.
        key: the random key that the draw depends on.

    Returns:
        The ascending indices of the remaining [N - count] and of the drawn examples [count].
    """
    order = permutation(len(labels), *key)
    by_class = order[torch.argsort(labels[order], stable=True)]
    sizes = torch.bincount(labels)
    first = sizes.cumsum(0) - sizes
    ordered = labels[by_class]
    rank = torch.arange(len(labels), dtype=torch.float64) - first[ordered] + 0.5
    share = torch.empty_like(rank)
    share[by_class] = rank / sizes[ordered]
    # Ties are common; the random order breaks them.
    chosen = order[torch.argsort(share[order], stable=True)]
    return chosen[count:].sort().values, chosen[:count].sort().values


def balanced_order(labels: Tensor, *key: int | str) -> Tensor:
    """The indices [N] of as many examples as there are, the same number of each class, in random order.

    Examples of rare classes are repeated, each equally often up to one. Of the frequent classes, a random
    part is drawn.

    Args:
        labels: classes [N].
        key: the random key that the draw depends on.
    """
    sizes = torch.bincount(labels)
    members = torch.argsort(labels, stable=True).split(sizes.tolist())
    present = [each for each in members if len(each)]
    count, extra = divmod(len(labels), len(present))
    drawn = []
    for number, each in enumerate(present):
        repeats, rest = divmod(count + (number < extra), len(each))
        drawn += [each.repeat(repeats), each[permutation(len(each), *key, number)[:rest]]]
    order = torch.cat(drawn)
    return order[permutation(len(order), *key)]


def carve_test(labels: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """The indices for training and for testing, a fifth of the examples that does not depend on the seed.

    A single example is for training.
    """
    return stratified(labels, min(math.ceil(TEST_SHARE * len(labels)), len(labels) - 1), name, "test")


def carve_validation(
    train: Examples, validation: float, limit: int | None, seed: int
) -> tuple[Examples, Examples | None]:
    """Splits training examples into those for training and those for validation.

    The validation examples are drawn before the limit is applied, so that a limit does not change them. A
    share refers to the examples within the limit.

    Args:
        train: the training examples.
        validation: a count, or a share below 1; 0 for none.
        limit: the largest number of examples to train on.
        seed: the seed of the draw.
    """
    require_seed(seed)
    if limit is not None and limit < 1:
        raise UserError(f"The limit must be at least 1 training example, not {limit}.")
    given: object = validation
    if isinstance(given, bool) or not isinstance(given, Real):
        raise UserError(f"validation must be a count or a share between 0 and 1, not {given!r}.")
    if not validation >= 0 or (validation > 1 and validation % 1):
        raise UserError(f"validation must be a count or a share between 0 and 1, not {validation}.")
    if isinstance(validation, float) and validation == 1:
        raise UserError(
            "validation 1.0 would leave no example to train on; write a share below 1, such as 0.1, or the "
            "whole number 1 for a single example."
        )
    used = min(limit or len(train), len(train))
    count = round(validation * used) if validation < 1 else int(validation)
    if count >= len(train):
        raise UserError(
            f"With {count} validation examples, none of {len(train)} is left to train on; use fewer."
        )
    held_out = None
    if count:
        remaining, drawn = stratified(train.labels, count, seed, "validation")
        train, held_out = train.subset(remaining), train.subset(drawn)
    if limit is not None and limit < len(train):
        train = train.subset(stratified(train.labels, limit, seed, "limit")[1])
    return train, held_out
