"""Flags that `train` and `compare` share: they derive from the settings of an experiment."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from hff.cli.parsing import Parser, UsageError, dashed

if TYPE_CHECKING:
    from hff.config import Field
    from hff.experiment import Selection

SWITCHES = frozenset({"--help", "--json", "--quiet"})
"""Flags without a value."""
ALLOWED_WITH_RESUME = frozenset({"resume", "device", "data_dir", "json", "quiet", "help", "recipe"})
"""Flags that do not change the settings of a run. (The recipe has its own check.)"""


LONGEST_FLAG = 78
"""The longest line of a flag and its values in the help."""
CHOSEN_BATCH_SIZE = "8 to 128, depending on the number of training examples"
"""What the help shows as the batch size if none is given."""


def scan_arguments(argv: Sequence[str]) -> dict[str, str]:
    """The values of all flags, and the recipe under "recipe".

    The flags of the parser depend on the selected method, network and data set, so these must be known before
    the parser exists.
    """
    found: dict[str, str] = {}
    waiting = None
    for argument in dashed(argv):
        flag, equals, value = argument.partition("=")
        if argument.startswith("--"):
            waiting = None if equals or flag in SWITCHES else flag
            if equals:
                found[flag] = value
        elif waiting:
            found[waiting] = argument
            waiting = None
        elif not argument.startswith("-"):
            found.setdefault("recipe", argument)
    return found


def add_field(group: argparse._ArgumentGroup, field: "Field", key: str, value: Any) -> None:
    """Adds the flag of a setting. The help ends with its value in parentheses."""
    from hff.config import shown

    flag, values, text = "--" + key.replace("_", "-"), metavar(field.type), field.help.removesuffix(".")
    if len(f"  {flag} {values}") > LONGEST_FLAG:
        # argparse does not wrap the values, so they move to the text.
        text, values = f"{text}: {values.replace('|', ', ')}", "NAME"
    text = f"{text} ({shown(value)})".strip().replace("%", "%%")
    group.add_argument(flag, dest=key, metavar=values, default=argparse.SUPPRESS, help=text)


def add_part(parser: Parser, part: str, selected: "Selection") -> None:
    """Adds the flag that selects a method, network or data set, and the flags of its options."""
    from hff.experiment import PARTS

    about = PARTS[part]
    group = parser.add_argument_group(f"{about.kind} {selected.name}")
    text = f"{', '.join(sorted(about.registry))} ({selected.name})"
    group.add_argument(f"--{part}", metavar="NAME", default=argparse.SUPPRESS, help=text)
    for field in about.fields(selected.name):
        add_field(group, field, f"{part}.{field.name}", selected.options[field.name])


def metavar(kind: Any) -> str:
    """The placeholder for values of a type in the help."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return "N,N"
    if get_args(kind):
        return "|".join(metavar(part) for part in get_args(kind))
    return {int: "N", float: "X", bool: "true|false", Path: "PATH", NoneType: "none"}.get(kind, "TEXT")


def settings_in(given: argparse.Namespace) -> dict[str, Any]:
    """The settings that the flags give, in the form of a recipe."""
    from hff.config import fields_of
    from hff.experiment import PARTS, SCALARS
    from hff.training import Settings

    settings: dict[str, Any] = {}
    top_level = {field.name for field in (*SCALARS, *fields_of(Settings))}
    for key, value in vars(given).items():
        part, dot, option = key.partition(".")
        if key in top_level:
            settings[key] = value
        elif part in PARTS:
            settings.setdefault(part, {})[option if dot else "name"] = value
    return settings


def refuse_settings(given: argparse.Namespace) -> None:
    """Refuses settings beside --resume: they come from the folder."""
    extra = [
        key for key, value in vars(given).items() if value is not None and key not in ALLOWED_WITH_RESUME
    ]
    if getattr(given, "recipe", None) is not None:
        extra.append(given.recipe)
    if extra:
        raise UsageError(f"--resume takes all settings from the folder; remove {extra[0]!r}.")


def fetch_data(selected: "Selection", data_dir: Path | None, quiet: bool) -> None:
    """Downloads missing files. Loading the data would do so as well, but without a progress bar."""
    from hff.cli.data import fetch
    from hff.data import needs_download

    if needs_download(selected.name, data_dir, selected.options.get("path")):
        fetch(selected.name, data_dir, quiet)
