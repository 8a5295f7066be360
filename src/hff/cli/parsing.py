"""Parsing of command lines. Flags cannot be abbreviated, and an error is one sentence."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from hff.errors import UserError, unknown


class UsageError(UserError):
    """The command line or the configuration is wrong. Nothing has been done yet."""


@contextmanager
def configuring() -> Iterator[None]:
    """Turns every UserError into a UsageError, because no run has started yet."""
    try:
        yield
    except UserError as error:
        raise UsageError(str(error)) from error


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations. The error for an unknown flag suggests the nearest valid one."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(prog=f"hff {verb}", description=description, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "--help", action="store_true", help="show this help")

    def add_machine_flags(self, device: bool = True) -> None:
        """Adds the flags that most verbs have: device, data folder and JSON output."""
        if device:
            self.add_argument(
                "--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps (auto)"
            )
        text = "folder of data files ($HFF_DATA, else the user's cache)"
        self.add_argument("--data-dir", type=Path, metavar="DIR", help=text)
        self.add_argument("--json", action="store_true", help="print one JSON document")

    def read(self, argv: Sequence[str]) -> argparse.Namespace | None:
        """Parses the command line. If it asks for help, prints the help and returns None."""
        argv = dashed(argv)
        if "-h" in argv or "--help" in argv:
            sys.stdout.write(self.format_help())
            return None
        values, rest = self.parse_known_args(argv)
        if rest:
            raise self._unexpected(rest)
        return values

    def error(self, message: str) -> NoReturn:
        """Called by argparse if a value is missing or invalid."""
        raise UsageError(f"{message[0].upper()}{message[1:]}; see `{self.prog} --help`.")

    def _unexpected(self, rest: Sequence[str]) -> UsageError:
        flags = [argument.partition("=")[0] for argument in rest if argument.startswith("-")]
        if not flags:
            return UsageError(f"Unexpected argument {rest[0]!r}; see `{self.prog} --help`.")
        valid = [flag for flag in self._option_string_actions if flag.startswith("--")]
        group, dot, _ = flags[0].partition(".")
        if dot and any(flag.startswith(group + dot) for flag in valid):
            valid = [flag for flag in valid if flag.startswith(group + dot)]
        return UsageError(str(unknown("flag", flags[0], valid)))


def dashed(argv: Sequence[str]) -> list[str]:
    """The arguments with dashes for underscores in the names of flags, so that both spellings work."""
    arguments = []
    for argument in argv:
        flag, equals, value = argument.partition("=")
        arguments.append(flag.replace("_", "-") + equals + value if flag.startswith("--") else argument)
    return arguments
