"""Recipes: experiments in YAML. Some are part of the package, and users can write their own."""

from importlib import resources
from pathlib import Path
from typing import Any

from hff.errors import UserError, unknown
from hff.files import LARGEST_YAML, parse_yaml, read_text

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
        text = read_text(path, LARGEST_YAML, f"The recipe {name}")
        return {"name": path.stem, **parse(text, name)}
    if name not in _names() and (path.suffix or path.exists() or len(path.parts) > 1):
        raise UserError(
            f"{name} is not a recipe, which is a name or a YAML file; to train on your own data, use "
            f"{_own_data(path)}."
        )
    if name not in _names():
        raise unknown("recipe", name, _names())
    return {"name": name, **parse(_text(name), f"The recipe {name}")}


def parse(text: str, source: str) -> dict[str, Any]:
    """The settings in YAML text. Error messages call it `source`."""
    settings = parse_yaml(text, source)
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise UserError(
            f"{source} must contain settings such as `epochs: 15`, not a {type(settings).__name__}."
        )
    return settings


def _own_data(path: Path) -> str:
    """The commands that train on data of the user's own, which is in a path."""
    if path.suffix == ".npz":
        return f"`hff train --data npz --data.path {path}`"
    if path.is_dir():
        return f"`hff train --data folder --data.path {path}`"
    return "`--data folder --data.path FOLDER` for images, or `--data npz --data.path FILE` for arrays"


def _names() -> list[str]:
    return sorted(
        Path(file.name).stem for file in resources.files(__name__).iterdir() if file.name.endswith(SUFFIXES)
    )


def _text(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
