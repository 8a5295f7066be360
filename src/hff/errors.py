"""The exception for mistakes that the user can fix."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_NAMES = 24
"""A longer list of valid names is cut in messages."""

LONGEST_VALUE = 200
"""A longer value is cut in messages."""


class UserError(Exception):
    """A mistake that the user can fix. The message is one sentence that says what is wrong and what to do."""


def require(condition: bool, message: str) -> None:
    """Raises a `UserError` with the message unless the condition holds."""
    if not condition:
        raise UserError(message)


def require_seed(seed: object) -> None:
    """Raises a `UserError` unless the seed is an int: one of NumPy would give other random numbers."""
    is_int = isinstance(seed, int) and not isinstance(seed, bool)
    require(is_int, f"seed must be a whole number of type int, not {quoted(seed)}.")


def quoted(value: object) -> str:
    """A value as it is shown in messages: cut if it is long, because a damaged file can hold anything."""
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def shortened(text: str) -> str:
    """Text as a part of a message: on one line, and cut if it is long."""
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= LONGEST_VALUE else f"{line[:LONGEST_VALUE]}..."


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for an unknown name. It suggests the nearest valid name, or lists the valid ones.

    Only the last part of dotted names is compared, because a shared prefix makes all names look similar.
    """
    names = sorted(valid)
    ends = {each.rpartition(".")[2]: each for each in names}
    near = [ends[end] for end in get_close_matches(name.rpartition(".")[2], ends, n=1, cutoff=0.6)]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES + 1 else ""
    choices = ", ".join(names[:MOST_NAMES] if more else names)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {choices}{more}."
    return UserError(f"Unknown {kind} {quoted(name)}; {hint}")
