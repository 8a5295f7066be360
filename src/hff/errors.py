"""The one exception that users meet: a mistake they can mend, said in one sentence."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Something that the user can put right; the message is one sentence that says what and how."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for a name that does not exist: offers the nearest valid one, else lists them all.

    Of dotted names only the last part is compared: what all of them share makes no two of them alike.
    """
    names = sorted(valid)
    ends = {each.rpartition(".")[2]: each for each in names}
    near = [ends[end] for end in get_close_matches(name.rpartition(".")[2], ends, n=1, cutoff=0.6)]
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(names)}."
    return UserError(f"Unknown {kind} {name!r}; {hint}")
