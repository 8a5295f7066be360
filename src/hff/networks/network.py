"""A network, which is a table of rows with an input shape, and the registry of tables."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from hff.config import parse_options
from hff.errors import UserError
from hff.networks.affine import WITHOUT_GRADIENT, AffineRow
from hff.networks.block import Block, Row, Shape, TooSmall
from hff.registry import Registry

BYTES_PER_PARAMETER = 16
"""A weight, its gradient, and the two moments of Adam."""


@dataclass(frozen=True)
class Network:
    """A table of rows and the shape of its input: all that a method needs to build its blocks."""

    name: str
    in_shape: Shape
    rows: tuple[Row, ...]

    def blocks(self) -> list[Block]:
        """New blocks, initialized from torch's global generator."""
        blocks: list[Block] = []
        shape = self.in_shape
        for row in self.rows:
            try:
                blocks.append(row.build(shape))
            except TooSmall as error:
                raise self._too_small(error) from None
            shape = blocks[-1].out_shape
        return blocks

    def out_shapes(self) -> list[Shape]:
        """The output shape of each row."""
        shapes, shape = [], self.in_shape
        for row in self.rows:
            shape = row.out_shape(shape)
            shapes.append(shape)
        return shapes

    @property
    def affine_rows(self) -> list[AffineRow]:
        """The rows that are a convolution or a linear map."""
        return [row for row in self.rows if isinstance(row, AffineRow)]

    @property
    def activations_without_gradient(self) -> set[str]:
        """The activations in use whose derivative is zero almost everywhere."""
        return {row.activation for row in self.affine_rows} & WITHOUT_GRADIENT

    def ends_in(self, classes: int) -> bool:
        """Whether the last row is linear and has one unit for each class."""
        last = self.rows[-1]
        return (last.kind, last.width) == ("linear", classes)

    def with_output(self, classes: int) -> "Network":
        """The network with a last linear row of C units and no activation, which computes the scores.

        If the last row is already linear with C units, it is used. Otherwise a row is added, with a bias if
        the row before it has one.
        """
        *lower, last = self.rows
        if isinstance(last, AffineRow) and self.ends_in(classes):
            output = replace(last, activation="identity", dropout=0.0)
        else:
            lower.append(last)
            bias = last.bias if isinstance(last, AffineRow) else True
            output = AffineRow("linear", classes, activation="identity", bias=bias)
        return replace(self, rows=(*lower, output))

    def too_large(self) -> str | None:
        """Why training the network cannot fit into this machine's memory, in one sentence; None if it can."""
        try:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None  # The system does not report its memory.
        try:
            with torch.device("meta"):
                numbers = sum(p.numel() for block in self.blocks() for p in block.parameters())
        except (RuntimeError, TypeError) as error:
            if "overflow" in str(error).lower():
                reason = "has more parameters than any machine can hold; choose a smaller one."
                return f"Network {self.name!r} {reason}"
            if isinstance(error, TypeError):
                raise
            return None  # A block of another package computes with values, which the meta device lacks.
        needed = BYTES_PER_PARAMETER * numbers
        if needed <= memory:
            return None
        return (
            f"Network {self.name!r} has {numbers:,} parameters, and training them takes about "
            f"{needed / 1e9:,.0f} GB, but this machine has {memory / 1e9:,.0f} GB; choose a smaller network."
        )

    def _too_small(self, error: UserError) -> UserError:
        sizes = (replace(self, in_shape=(self.in_shape[0], n, n)) for n in range(1, 513))
        smallest = next((each.in_shape[1] for each in sizes if each._fits()), None)
        if smallest is None:
            return error
        given = "x".join(map(str, self.in_shape[1:]))
        return UserError(
            f"Network {self.name!r} needs images of {smallest}x{smallest} pixels or more, not {given}."
        )

    def _fits(self) -> bool:
        try:
            self.out_shapes()
        except UserError:
            return False
        return True


Table = Callable[..., Sequence[Row]]
"""A function of the number of classes that returns the rows of a network."""
AnyTable = TypeVar("AnyTable", bound=Table)

networks: Registry[Table] = Registry("network", "hff.networks")
"""Every table by name; its keyword-only parameters are its options."""


def register(table: AnyTable) -> AnyTable:
    """Adds a table to the registry under the name of the function."""
    networks.add(table.__name__, table)
    return table


def create_network(name: str, in_shape: Sequence[int], classes: int, **options: Any) -> Network:
    """Creates the network of this name for inputs [*in_shape] and the given number of classes."""
    table = networks.find(name)
    options = parse_options(table, options, f"network {name!r}")
    if isinstance(in_shape, int) or not all(isinstance(n, int) and n > 0 for n in in_shape):
        raise UserError(f"in_shape must be a shape such as (1, 28, 28) or (64,), not {in_shape!r}.")
    return Network(name, tuple(in_shape), tuple(table(classes, **options)))
