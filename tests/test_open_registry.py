"""The registry of items, which other packages extend through entry points."""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from hff.errors import UserError
from hff.registry import Registry

GROUP = "hff.tests"


class Ridge:
    """Stands for an item of another package."""


def not_a_ridge() -> None:
    """Stands for an object of the wrong kind."""


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretends that packages with these entry points, name = value, are installed."""

    def install(*points: tuple[str, str]) -> None:
        found = [EntryPoint(name, value, GROUP) for name, value in points]
        monkeypatch.setattr("hff.registry.entry_points", lambda group: found if group == GROUP else [])

    install()
    return install


def make(**items: Any) -> Registry[Any]:
    registry: Registry[Any] = Registry("method", GROUP)
    for name, item in items.items():
        registry.add(name, item)
    return registry


@pytest.mark.usefixtures("install")
def test_a_taken_name_is_refused() -> None:
    registry = make(ridge=Ridge)
    with pytest.raises(UserError, match=r"already a method named 'ridge' \(test_open_registry\)"):
        registry["ridge"] = dict
    assert registry["ridge"] is Ridge


@pytest.mark.usefixtures("install")
def test_the_same_item_may_be_added_twice() -> None:
    registry = make(ridge=Ridge, row=(1, 2))
    registry.add("ridge", Ridge)
    registry.add("row", (1, 2))
    reloaded = type("Ridge", (), {"__module__": Ridge.__module__})
    registry.add("ridge", reloaded)
    assert list(registry) == ["ridge", "row"]
    with pytest.raises(UserError, match="already a method named 'row'; choose another name"):
        registry.add("row", (1, 3))


@pytest.mark.usefixtures("install")
def test_an_unknown_name_suggests_the_nearest_one() -> None:
    with pytest.raises(UserError, match="Unknown method 'rigde'; did you mean 'ridge'"):
        make(ridge=Ridge).find("rigde")


def test_entry_points_are_listed_and_loaded_when_used(install: Callable[..., None]) -> None:
    install(("ridge", f"{__name__}:Ridge"), ("broken", "no_such_module:Item"))
    registry = make(own=dict)
    assert list(registry) == ["own", "ridge", "broken"]
    assert len(registry) == 3
    assert "ridge" in registry
    assert registry.find("ridge") is Ridge
    del registry["ridge"]
    assert registry["ridge"] is Ridge


def test_the_error_of_a_broken_entry_point_names_it(install: Callable[..., None]) -> None:
    install(("broken", "no_such_module:Item"), ("ridge", f"{__name__}:Ridge"))
    registry = make()
    with pytest.raises(UserError, match=r"method 'broken' of no_such_module:Item cannot be loaded") as error:
        registry["broken"]
    assert "ModuleNotFoundError" in str(error.value)
    with pytest.warns(UserWarning, match="'broken'"):
        assert registry.working() == {"ridge": Ridge}


def test_an_entry_point_cannot_replace_an_item(install: Callable[..., None]) -> None:
    install(("ridge", f"{__name__}:Ridge"))
    with pytest.raises(UserError, match="already a method named 'ridge'"):
        make(ridge=dict)["ridge"]


def test_two_packages_cannot_offer_the_same_name(install: Callable[..., None]) -> None:
    install(("ridge", "one:Ridge"), ("ridge", "two:Ridge"))
    with pytest.raises(UserError, match=r"Two packages offer .* \(one:Ridge and two:Ridge\)"):
        list(make())


def test_convert_makes_items_and_refuses_other_objects(install: Callable[..., None]) -> None:
    def convert(found: Any) -> Ridge:
        if found is not Ridge:
            raise TypeError("it is not a Ridge")
        return Ridge()

    install(("ridge", f"{__name__}:Ridge"), ("wrong", f"{__name__}:not_a_ridge"))
    registry = Registry("method", GROUP, convert)
    assert isinstance(registry["ridge"], Ridge)
    with pytest.raises(UserError, match="TypeError: it is not a Ridge"):
        registry["wrong"]
