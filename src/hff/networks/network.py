"""The registry of tables, and a table with the shape of its input: a `Network`."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hff.errors import UserError, unknown
from hff.networks.block import Block, Row, Shape, TooSmall, shapes


@dataclass(frozen=True)
class Network:
    """A table with the shape of its input: everything a method needs to build its blocks."""

    name: str
    in_shape: Shape
    rows: tuple[Row, ...]

    def blocks(self) -> list[Block]:
        """Fresh blocks, initialised from torch's global generator."""
        blocks: list[Block] = []
        shape = self.in_shape
        for row in self.rows:
            try:
                blocks.append(Block(row, shape))
            except TooSmall as error:
                raise self._too_small(error) from None
            shape = blocks[-1].out_shape
        return blocks

    def _too_small(self, error: UserError) -> UserError:
        smallest = next((n for n in range(1, 513) if _fits(self.rows, (self.in_shape[0], n, n))), None)
        if smallest is None:
            return error
        given = "x".join(map(str, self.in_shape[1:]))
        return UserError(
            f"Network {self.name!r} needs images of {smallest}x{smallest} pixels or more, not {given}."
        )


Table = Callable[..., list[Row]]
networks: dict[str, Table] = {}
"""Every table by name; its keyword-only parameters are its configuration."""


def register(table: Table) -> Table:
    networks[table.__name__] = table
    return table


def create_network(name: str, in_shape: Sequence[int], classes: int, **options: Any) -> Network:
    """The network of that name for inputs [*in_shape] and so many classes."""
    if name not in networks:
        raise unknown("network", name, networks)
    for option in options:
        valid = [
            p.name for p in inspect.signature(networks[name]).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        if option not in valid:
            raise unknown(f"parameter of network {name!r}:", option, valid)
    return Network(name, tuple(in_shape), tuple(networks[name](classes, **options)))


def _fits(rows: Sequence[Row], shape: Shape) -> bool:
    try:
        for row in rows:
            _, _, shape = shapes(row, shape)
    except UserError:
        return False
    return True
