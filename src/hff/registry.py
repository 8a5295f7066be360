"""Open registries: what this package ships, and what other packages add by entry point."""

import warnings
from collections.abc import Iterator, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from hff.errors import UserError, unknown

Item = TypeVar("Item")


class Registry(MutableMapping[str, Item], Generic[Item]):
    """Items by name, those of other packages among them.

    A package adds an item by an entry point: in its `pyproject.toml`, `[project.entry-points."hff.methods"]`
    holds `ridge = "my_package:Ridge"`. The entry point is loaded when its item is first asked for.

    Args:
        kind: what an item is called in messages, such as "method".
        group: the name of the entry points.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._items: dict[str, Item] = {}
        self._loaded: set[str] = set()
        """The entry points that have been loaded."""

    def add(self, name: str, item: Item) -> None:
        """Adds an item; a name that is taken already is refused."""
        taken = self._items.get(name)
        if taken is not None and not _is_same(taken, item):
            raise UserError(
                f"There is already a {self.kind} named {name!r} ({_origin(taken)}), so the one of "
                f"{_origin(item)} needs another name."
            )
        self._items[name] = item

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            taken = found.get(point.name)
            if taken is not None and taken.value != point.value:
                raise UserError(
                    f"Two packages offer a {self.kind} named {point.name!r} ({_package(taken)} and "
                    f"{_package(point)}); uninstall one of them."
                )
            found[point.name] = point
        return found

    def _load(self, name: str) -> None:
        """Loads the entry point of that name."""
        point = self._entry_points[name]
        try:
            item = point.load()
        except Exception as error:
            raise UserError(
                f"The {self.kind} {name!r} of {_package(point)} cannot be imported "
                f"({type(error).__name__}: {error}); repair or uninstall that package."
            ) from error
        self.add(name, item)

    def __getitem__(self, name: str) -> Item:
        # A name of this package that an entry point claims as well is refused by `add`.
        if name in self._entry_points and name not in self._loaded:
            self._load(name)
            self._loaded.add(name)
        return self._items[name]

    def find(self, name: str) -> Item:
        """The item of that name; an unknown name is refused with the nearest valid one."""
        if name not in self:
            raise unknown(self.kind, name, self)
        return self[name]

    def __setitem__(self, name: str, item: Item) -> None:
        self.add(name, item)

    def __delitem__(self, name: str) -> None:
        del self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items or name in self._entry_points

    def __iter__(self) -> Iterator[str]:
        yield from self._items
        for name in self._entry_points:
            if name not in self._items:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def working(self) -> dict[str, Item]:
        """All items that can be imported; a warning names each of the others."""
        found = {}
        for name in list(self):
            try:
                found[name] = self[name]
            except UserError as error:
                warnings.warn(str(error), stacklevel=2)
        return found


def _is_same(one: object, other: object) -> bool:
    return one is other or (_origin(one), getattr(one, "__qualname__", one)) == (
        _origin(other),
        getattr(other, "__qualname__", other),
    )


def _origin(item: object) -> str:
    return str(getattr(item, "__module__", type(item).__module__))


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name!r}" if point.dist else point.value
