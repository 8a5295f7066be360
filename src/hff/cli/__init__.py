"""The command `hff`. Slow imports happen inside the verbs, so that help is fast."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from hff.cli.parsing import UsageError
from hff.errors import UserError, unknown

VERBS = {
    "train": "train a method on a network and a data set",
    "eval": "evaluate a run, layer by layer",
    "predict": "classify images with a run, and show the prediction of each layer",
    "compare": "train all methods with the same settings, and rank them",
    "list": "list methods, networks, datasets or recipes",
    "data": "list data sets, and download them",
}
MODULES = {"eval": "evaluate", "list": "listing"}
"""Modules whose name differs from that of their verb."""

HELP = """usage: hff VERB ...

Train deep networks without backpropagation through depth.

verbs:
{verbs}

Start with `hff train`, which takes a few seconds. `hff VERB --help` describes a verb.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line. Returns the exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _fail(str(error), 2)
    except UserError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "Interrupted.", 130)
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). Without this, Python would report another error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _fail(": ".join(str(part) for part in (error.strerror or error, error.filename) if part), 1)


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(HELP.format(verbs="\n".join(f"  {verb:9}{text}" for verb, text in VERBS.items())))
        return 0
    verb, *rest = argv
    if verb == "--version":
        from hff import __version__

        sys.stdout.write(f"hff {__version__}\n")
        return 0
    if verb not in VERBS:
        raise UsageError(str(unknown("verb", verb, VERBS)))
    module = import_module(f"hff.cli.{MODULES.get(verb, verb)}")
    module.main(rest)
    return 0


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"hff: {message}\n")
    return code


__all__ = ["main"]
