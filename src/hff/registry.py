"""Registries of items by name, which other packages extend through entry points."""

import warnings
from collections.abc import Callable, Iterator, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from hff.errors import UserError, unknown

Item = TypeVar("Item")


class Registry(MutableMapping[str, Item], Generic[Item]):
    """Items by name, including those of other packages.

    A package adds an item with an entry point. For example, its `pyproject.toml` has a section
    `[project.entry-points."hff.methods"]` with the line `ridge = "my_package:Ridge"`. The entry point is
    loaded when its item is first used.

    Args:
        kind: what an item is called in messages, such as "method".
        group: the group of the entry points, such as "hff.methods".
        convert: turns the object that an entry point names into an item. It raises a TypeError if it cannot.
    """

    def __init__(self, kind: str, group: str, convert: Callable[[Any], Item] | None = None) -> None:
        self.kind = kind
        self.group = group
        self._convert = convert
        self._items: dict[str, Item] = {}
        self._loaded: set[str] = set()
        """The names of the entry points that have been loaded."""

    def add(self, name: str, item: Item) -> None:
        """Adds an item. A name that already belongs to another item is refused."""
        self._add(name, item, _origin(item))

    def _add(self, name: str, item: Item, origin: str) -> None:
        if name in self._items and not _is_same(self._items[name], item):
            taken = _origin(self._items[name])
            raise UserError(
                f"There is already a {self.kind} named {name!r}{taken and f' ({taken})'}; "
                f"choose another name for the new one{origin and f' ({origin})'}."
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
            if self._convert is not None:
                item = self._convert(item)
        except Exception as error:
            raise UserError(
                f"The {self.kind} {name!r} of {_package(point)} cannot be loaded "
                f"({type(error).__name__}: {error}); fix or uninstall that package."
            ) from error
        self._add(name, item, _package(point))

    def __getitem__(self, name: str) -> Item:
        # If an entry point claims a name that is already taken, `_add` refuses it.
        if name in self._entry_points and name not in self._loaded:
            self._load(name)
            self._loaded.add(name)
        return self._items[name]

    def find(self, name: str) -> Item:
        """The item of that name. The error for an unknown name suggests the nearest valid one."""
        given: object = name
        if not isinstance(given, str):
            found = "None" if given is None else f"an object of type {type(given).__name__}"
            raise UserError(f"The name of a {self.kind} must be a string, not {found}.")
        if name not in self:
            raise unknown(self.kind, name, self)
        return self[name]

    def __setitem__(self, name: str, item: Item) -> None:
        self.add(name, item)

    def __delitem__(self, name: str) -> None:
        """Removes an item that was added in this process; the item of an entry point is loaded again."""
        del self._items[name]
        self._loaded.discard(name)

    def __contains__(self, name: object) -> bool:
        return name in self._items or name in self._entry_points

    def __iter__(self) -> Iterator[str]:
        yield from self._items
        for name in self._entry_points:
            if name not in self._items:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def working(self, report: Callable[[UserError], object] | None = None) -> dict[str, Item]:
        """All items that can be loaded. `report`, by default a warning, names each of the others."""
        found = {}
        for name in list(self):
            try:
                found[name] = self[name]
            except UserError as error:
                if report is None:
                    warnings.warn(str(error), stacklevel=2)
                else:
                    report(error)
        return found


def _is_same(one: object, other: object) -> bool:
    """Whether both are the same object, or the same class or function after its module was reloaded."""
    if one is other:
        return True
    name = getattr(one, "__qualname__", None)
    if name is None:
        return type(one) is type(other) and bool(one == other)
    return (_origin(one), name) == (_origin(other), getattr(other, "__qualname__", None))


def _origin(item: object) -> str:
    """The module of a class or function; empty for other objects, which do not know where they were made."""
    return str(item.__module__) if hasattr(item, "__qualname__") else ""


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name!r}" if point.dist else point.value
