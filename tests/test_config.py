"""Settings from typed signatures: fields, conversion, error messages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from hff.config import Field, argument_help, convert, describe, fields_of, resolve, shown, to_builtin
from hff.errors import UserError
from hff.experiment import PARTS
from hff.training import Settings

Color = Literal["red", "green"]


def paint(
    canvas: str,
    *,
    color: Color = "red",
    strength: float = 0.5,
    layers: tuple[int, ...] = (1, 2),
    read_out: Literal["last", "best"] | int = "last",
    path: Path | None = None,
    dry: bool = False,
) -> None:
    """Paints.

    Args:
        canvas: what to paint on; not a setting, because it is not keyword-only.
        color: which color,
            described in two lines.
        strength: how strong: between 0 and 1.

    Returns:
        Nothing: this is not the help of strength.
    """


@dataclass(frozen=True)
class Frame:
    """A frame.

    Args:
        width: in centimeters.
    """

    width: int = 3


def test_fields_are_the_keyword_only_parameters() -> None:
    fields = {field.name: field for field in fields_of(paint)}
    assert list(fields) == ["color", "strength", "layers", "read_out", "path", "dry"]
    assert fields["color"] == Field("color", Color, "red", "which color, described in two lines.")
    assert fields["strength"].help == "how strong: between 0 and 1."
    assert fields["dry"].help == ""

    assert "path" not in [field.name for field in fields_of(paint, hidden=("path",))]


def test_fields_of_a_dataclass() -> None:
    assert fields_of(Frame) == [Field("width", int, 3, "in centimeters.")]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("3", int, 3),
        ("-1", int, -1),
        ("1e-3", float, 0.001),
        (2, float, 2.0),
        ("true", bool, True),
        ("No", bool, False),
        ("green", Color, "green"),
        ("2000,2000", tuple[int, ...], (2000, 2000)),
        ("[2000, 100]", tuple[int, ...], (2000, 100)),
        ([5, 6], tuple[int, ...], (5, 6)),
        (500, tuple[int, ...], (500,)),
        ("[]", tuple[int, ...], ()),
        ("1,2", tuple[int, int], (1, 2)),
        ("none", int | None, None),
        ("4", int | None, 4),
        ("none", str | None, None),
        ("none", Literal["none", "batch"], "none"),
        ("best", Literal["last", "best"] | int, "best"),
        ("-1", Literal["last", "best"] | int, -1),
        ("5000", int | float, 5000),
        (0.1, int | float, 0.1),
        ("/a/b", Path | None, Path("/a/b")),
    ],
)
def test_convert(value: object, kind: object, expected: object) -> None:
    converted = convert(value, kind)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("x", int, "a whole number"),
        (True, int, "a whole number"),
        (1.5, int, "a whole number"),
        ("nan", float, "a number"),
        ("maybe", bool, "true or false"),
        (2, bool, "true or false"),
        (3, str, "text"),
        ("blue", Color, "one of red, green"),
        ("1,a", tuple[int, ...], "a list of whole numbers such as 1,2"),
        ("1,2,3", tuple[int, int], "a list of 2 whole numbers such as 1,2"),
        ("x", int | None, "a whole number or none"),
        ("x", int | float, "a number"),
        ("first", Literal["last", "best"] | int, "one of last, best or a whole number"),
        ({"a": 1}, Path, "a path"),
    ],
)
def test_the_error_for_a_wrong_value_describes_the_valid_ones(
    value: object, kind: object, words: str
) -> None:
    with pytest.raises(UserError) as error:
        Field("key", kind, None, "").parse(value, "part.key")
    assert str(error.value) == f"part.key must be {words}, not {value!r}."


def test_relative_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert convert("data/x.npz", Path) == tmp_path / "data/x.npz"


def test_resolve_fills_in_defaults_and_converts() -> None:
    resolved = resolve(fields_of(paint), {"strength": "1", "layers": [3]}, "paint.")
    assert resolved["strength"] == 1.0
    assert resolved["layers"] == (3,)
    assert resolved["color"] == "red"
    assert len(resolved) == 6


def test_the_error_for_an_unknown_key_suggests_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r"did you mean 'paint\.strength'"):
        resolve(fields_of(paint), {"strenght": 1}, "paint.")


def test_a_missing_required_setting_is_an_error() -> None:
    def need(*, size: int) -> None: ...

    with pytest.raises(UserError, match=r"part\.size is missing; set it to a whole number"):
        resolve(fields_of(need), {}, "part.")


def test_values_as_builtins_and_as_text() -> None:
    assert to_builtin({"a": (1, 2), "b": Path("/x"), "c": None}) == {"a": [1, 2], "b": "/x", "c": None}
    assert [shown(v) for v in ((1, 2), True, None, 10.0, 0.001, "x")] == [
        "1,2",
        "true",
        "none",
        "10",
        "0.001",
        "x",
    ]


def test_a_docstring_without_arguments_gives_no_help() -> None:
    assert argument_help("Just a line.") == {}


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_has_a_help_text_and_a_default_that_can_be_parsed(part: str) -> None:
    sources = {name: PARTS[part].fields(name) for name in PARTS[part].registry}
    for owner, fields in {**sources, "training": fields_of(Settings)}.items():
        for field in fields:
            assert field.help, f"{field.name} is missing in the docstring of {owner}"
            assert describe(field.type)
            assert field.parse(shown(field.default), owner) == field.default
            assert field.parse(to_builtin(field.default), owner) == field.default
