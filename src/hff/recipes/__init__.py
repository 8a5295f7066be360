"""Recipes: experiments in YAML. Some are part of the package, and users can write their own."""

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from hff.errors import UserError, unknown

SUFFIXES = (".yaml", ".yml")


def recipes() -> dict[str, str]:
    """The recipes of the package: each name with its description, the first line of the file."""
    return {name: _text(name).partition("\n")[0].lstrip("# ") for name in _names()}


def read(name: str) -> dict[str, Any]:
    """The settings of a recipe, including its name.

    Args:
        name: the name of a recipe in the package, or the path of a YAML file.
    """
    path = Path(name)
    if path.suffix in SUFFIXES:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UserError(f"The recipe {name} cannot be read: {reason}.") from None
        return {"name": path.stem, **parse(text, name)}
    if name not in _names():
        raise unknown("recipe", name, _names())
    return {"name": name, **parse(_text(name), f"The recipe {name}")}


def parse(text: str, source: str) -> dict[str, Any]:
    """The settings in YAML text. Error messages call it `source`."""
    try:
        settings = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        raise UserError(f"{source} is not valid YAML{place}; fix it.") from None
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise UserError(
            f"{source} must contain settings such as `epochs: 15`, not a {type(settings).__name__}."
        )
    return settings


def _names() -> list[str]:
    return sorted(
        Path(file.name).stem for file in resources.files(__name__).iterdir() if file.name.endswith(SUFFIXES)
    )


def _text(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
