"""Configuration derived from typed signatures: flags, YAML, help and saved files all come from `Field`s.

(jsonargparse also derives flags from signatures, but its class_path form does not work with registry names.)
"""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hff.errors import UserError, quoted, unknown

TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
NONE = frozenset({"none", "null", ""})


class Mismatch(ValueError):
    """A value does not have the expected type."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One setting: a keyword-only parameter of a function or class, or a field of a dataclass."""

    name: str
    type: Any
    default: Any
    """`inspect.Parameter.empty` if the setting is required."""
    help: str

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def parse(self, value: Any, key: str) -> Any:
        """Converts a value from text or YAML to the type of the field; error messages call it `key`."""
        try:
            return convert(value, self.type)
        except Mismatch:
            raise UserError(f"{key} must be {describe(self.type)}, not {quoted(value)}.") from None


def fields_of(source: Callable[..., Any], hidden: Iterable[str] = ()) -> list[Field]:
    """The settings of a function or class: its keyword-only parameters, or all fields of a dataclass.

    A class whose `__init__` takes `**options` also has the settings of the next class it inherits from. Its
    own settings come first and override inherited ones of the same name.

    Args:
        source: the function or class; the Google-style "Args:" of its docstring are the help texts.
        hidden: names of parameters that are not settings.
    """
    found: dict[str, Field] = {}
    for declared in _declarations(source):
        parameters = inspect.signature(declared).parameters.values()
        hints = get_type_hints(declared)
        for parameter in parameters:
            name, kind = parameter.name, parameter.kind
            if kind is parameter.KEYWORD_ONLY or (dataclasses.is_dataclass(source) and name != "self"):
                found.setdefault(name, Field(name, hints[name], parameter.default, _help(source, name)))
    return [field for name, field in found.items() if name not in hidden]


def parse_options(source: Callable[..., Any], options: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The options in their types; unknown names and wrong values raise errors that mention the `owner`."""
    fields = {field.name: field for field in fields_of(source)}
    for option in options:
        if option not in fields:
            raise unknown(f"parameter of {owner}:", option, fields)
    return {option: fields[option].parse(value, option) for option, value in options.items()}


def _declarations(source: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The functions whose keyword-only parameters are the settings."""
    if not inspect.isclass(source):
        return [source]
    found: list[Callable[..., Any]] = []
    for each in source.__mro__:
        if "__init__" not in vars(each):
            continue
        found.append(vars(each)["__init__"])
        kinds = {parameter.kind for parameter in inspect.signature(found[-1]).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return found


def _help(source: Callable[..., Any], name: str) -> str:
    """The help text of a setting, for a class from the first class of its MRO that documents it."""
    documented = source.__mro__ if inspect.isclass(source) else (source,)
    helps = (argument_help(each.__doc__ or "").get(name) for each in documented)
    return next((text for text in helps if text), "")


def resolve(fields: Iterable[Field], values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The value of every field: the given one, converted to the type of the field, or the default.

    Args:
        fields: all valid settings.
        values: the given values by name.
        prefix: text before each name in error messages, such as "method.".
    """
    by_name = {field.name: field for field in fields}
    for name in values:
        if name not in by_name:
            raise unknown("setting", f"{prefix}{name}", [f"{prefix}{valid}" for valid in by_name])
    resolved = {}
    for name, field in by_name.items():
        if name in values:
            resolved[name] = field.parse(values[name], prefix + name)
        elif field.required:
            raise UserError(f"{prefix}{name} is missing; set it to {describe(field.type)}.")
        else:
            resolved[name] = field.default
    return resolved


def to_builtin(value: Any) -> Any:
    """Converts a value for YAML and JSON: tuples to lists, paths to text."""
    if isinstance(value, Mapping):
        return {key: to_builtin(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_builtin(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def shown(value: Any) -> str:
    """The value as text, as it would be typed after a flag."""
    if isinstance(value, list | tuple):
        return ",".join(map(shown, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def convert(value: Any, kind: Any) -> Any:
    """Converts the value to the type `kind`; raises `Mismatch` if that is impossible."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _first(value, get_args(kind))
    if origin is Literal:
        return _choice(value, get_args(kind))
    if origin is tuple:
        return _items(value, get_args(kind))
    if kind not in _CONVERTERS:
        raise TypeError(f"A setting cannot have the type {kind}.")
    return _CONVERTERS[kind](value)


def describe(kind: Any) -> str:
    """A description of the values that the type allows."""
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        # None comes last ("a number or none"), and "a number" includes whole numbers.
        parts = sorted(arguments, key=lambda part: part is NoneType)
        return " or ".join(describe(part) for part in parts if part is not int or float not in parts)
    if origin is Literal:
        names = [str(name) for name in arguments]
        return names[0] if len(names) == 1 else f"one of {', '.join(names)}"
    if origin is tuple:
        many = "" if arguments[-1] is Ellipsis else f"{len(arguments)} "
        return (
            f"a list of {many}{_PLURALS[arguments[0]]} such as {'1,2' if arguments[0] is not str else 'a,b'}"
        )
    return _WORDS[kind]


def argument_help(docstring: str) -> dict[str, str]:
    """The text of each entry of the "Args:" section, on one line."""
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)*)", inspect.cleandoc(docstring), re.MULTILINE)
    if section is None:
        return {}
    helps: dict[str, str] = {}
    name = None
    for line in inspect.cleandoc(section[1]).splitlines():
        entry = re.match(r"(\w+)(?: \([^)]*\))?:\s*(.*)", line)
        if entry:
            name = entry[1]
            helps[name] = entry[2]
        elif name and line.strip():
            helps[name] = f"{helps[name]} {line.strip()}".strip()
    return helps


def _first(value: Any, kinds: tuple[Any, ...]) -> Any:
    # None comes first, because the text "none" could also be a name or a path.
    for kind in sorted(kinds, key=lambda kind: kind is not NoneType):
        try:
            return convert(value, kind)
        except Mismatch:
            continue
    raise Mismatch


def _choice(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if value == choice and type(value) is type(choice):
            return choice
        if isinstance(value, str) and value == str(choice):
            return choice
    raise Mismatch


def _items(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, str):
        text = value.strip().removeprefix("[").removesuffix("]").removeprefix("(").removesuffix(")")
        value = [part.strip() for part in text.strip().strip(",").split(",")] if text.strip() else []
    elif not isinstance(value, list | tuple):
        value = [value]
    if kinds[-1] is Ellipsis:
        return tuple(convert(item, kinds[0]) for item in value)
    if len(value) != len(kinds):
        raise Mismatch
    return tuple(convert(item, kind) for item, kind in zip(value, kinds, strict=True))


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in TRUE | FALSE:
        return value.lower() in TRUE
    raise Mismatch


def _int(value: Any) -> int:
    # The numbers of NumPy count as well.
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise Mismatch
    try:
        return int(value)
    except ValueError:
        raise Mismatch from None


def _float(value: Any) -> float:
    # YAML reads 1e-3 as text, so text is converted here as well.
    if isinstance(value, bool) or not isinstance(value, Real | str):
        raise Mismatch
    try:
        number = float(value)
    except ValueError:
        raise Mismatch from None
    if not math.isfinite(number):
        raise Mismatch
    return number


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise Mismatch
    return value


def _path(value: Any) -> Path:
    # Absolute, because a saved run may be evaluated from another folder.
    if not isinstance(value, str | Path) or str(value) == "":
        raise Mismatch
    return Path(value).expanduser().absolute()


def _none(value: Any) -> None:
    if value is not None and not (isinstance(value, str) and value.lower() in NONE):
        raise Mismatch


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    Path: _path,
    NoneType: _none,
}
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    NoneType: "none",
}
_PLURALS: dict[Any, str] = {int: "whole numbers", float: "numbers", str: "names", Path: "paths"}
