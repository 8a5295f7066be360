"""Command lines: exact flags only, underscores as good as dashes, one sentence where something is wrong."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from hff.errors import UserError, unknown


class UsageError(UserError):
    """The command line or the configuration is wrong; nothing was done yet."""


@contextmanager
def configuring() -> Iterator[None]:
    """Whatever the user has to mend in here is a matter of the command line, not of the run."""
    try:
        yield
    except UserError as error:
        raise UsageError(str(error)) from error


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations and names the nearest flag where one is unknown."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(prog=f"hff {verb}", description=description, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "--help", action="store_true", help="show this help")

    def add_machine_flags(self, device: bool = True) -> None:
        """Flags that most verbs have: where to compute, where the data are, how to answer."""
        if device:
            self.add_argument(
                "--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps (auto)"
            )
        text = "folder of data files ($HFF_DATA, else the user's cache)"
        self.add_argument("--data-dir", type=Path, metavar="DIR", help=text)
        self.add_argument("--json", action="store_true", help="answer with one JSON document")

    def read(self, argv: Sequence[str]) -> argparse.Namespace | None:
        """The parsed command line; None after printing the help that it asked for."""
        argv = dashed(argv)
        if "-h" in argv or "--help" in argv:
            sys.stdout.write(self.format_help())
            return None
        values, rest = self.parse_known_args(argv)
        if rest:
            raise self._unexpected(rest)
        return values

    def error(self, message: str) -> NoReturn:
        """Called by argparse where a value is missing or not allowed."""
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
    """The arguments with every underscore in a flag's name as a dash: both spellings are one flag."""
    spelled = []
    for argument in argv:
        flag, equals, value = argument.partition("=")
        spelled.append(flag.replace("_", "-") + equals + value if flag.startswith("--") else argument)
    return spelled
