"""A data set in a few lines of text, and what the user should know before training on it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from hff.data.dataset import DataSet

WIDTH = 80
"""The longest line of a description."""

FEW = 10
"""A class with fewer training examples gets a warning."""

IMBALANCE = 3
"""The largest class may have this many times the training examples of the smallest one."""

UNBROKEN = "\N{NO-BREAK SPACE}"
"""Stands for a space at which a line is not wrapped."""

NAMED = 10
"""The largest number of classes that are listed by name."""


def described(data: DataSet, warnings: Sequence[str]) -> str:
    """Sizes and origins of the splits, size of the inputs, classes, and the warnings."""
    splits = {"training": data.train, "validation": data.validation, "test": data.test}
    keys = {"training": "train", "validation": "validation", "test": "test"}
    total = sum(len(split) for split in splits.values() if split is not None)
    what = "images" if len(data.in_shape) == 3 else "rows"
    lines = _wrapped(f"{data.name}: {total:,} {what} in {len(data.classes)} classes")
    for name, split in splits.items():
        if split is None:
            lines += _entry(name, "none")
        else:
            lines += _entry(name, f"{len(split):,} examples, {data.origins.get(keys[name], 'given')}")
    lines += _entry("input", _input(data) + (f"; {data.resized}" if data.resized else ""))
    lines += _entry("classes", _classes(data))
    for warning in warnings:
        lines += _wrapped(f"Warning: {warning}")
    return "\n".join(lines)


def warnings_of(data: DataSet) -> list[str]:
    """One sentence for each reason why a training may disappoint."""
    found = list(data.notes)
    counts = _counts(data)
    few = [name for name, count in zip(data.classes, counts, strict=True) if count < FEW]
    if len(few) == 1:
        found.append(
            f"The class {few[0]!r} has {min(counts)} training examples; with fewer than {FEW}, it will "
            "hardly be learned."
        )
    elif few:
        names = ", ".join(map(repr, few[:3])) + (", ..." if len(few) > 3 else "")
        found.append(
            f"{len(few)} classes have fewer than {FEW} training examples ({names}) and will hardly be "
            "learned."
        )
    smallest, largest = min(counts), max(counts)
    if largest > IMBALANCE * smallest:
        low, high = data.classes[counts.index(smallest)], data.classes[counts.index(largest)]
        found.append(
            f"The classes are imbalanced: {high!r} has {largest:,} training examples and {low!r} has "
            f"{smallest:,}; balance_classes draws them equally often (--balance-classes true)."
        )
    if data.validation is None:
        found.append(
            "There is no validation split, so nothing shows during training how well the network "
            "generalizes; set validation to a share such as 0.1."
        )
    return found


def _counts(data: DataSet) -> list[int]:
    """The number of training examples of each class."""
    counts: list[int] = torch.bincount(data.train.labels, minlength=len(data.classes)).tolist()
    return counts


def _input(data: DataSet) -> str:
    if len(data.in_shape) != 3:
        return f"{data.in_shape[0]:,} columns"
    channels, height, width = data.in_shape
    return f"{height}x{width} pixels, {'gray' if channels == 1 else 'color'}"


def _classes(data: DataSet) -> str:
    counts = _counts(data)
    if len(counts) > NAMED:
        return f"{min(counts):,} to {max(counts):,} training examples each"
    names = (textwrap.shorten(name, 20, placeholder="...") or name[:20] for name in data.classes)
    entries = (f"{name} ({count:,})" for name, count in zip(names, counts, strict=True))
    return ", ".join(entry.replace(" ", UNBROKEN) for entry in entries)


def _entry(name: str, text: str) -> list[str]:
    indent = " " * 13
    lines = textwrap.wrap(text, WIDTH, initial_indent=f"  {name:<10} ", subsequent_indent=indent)
    return [line.replace(UNBROKEN, " ") for line in lines]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")
