"""The command `hff`. Slow imports happen inside the verbs, so that help is fast."""

import codecs
import errno
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

from hff.cli.parsing import UsageError
from hff.errors import UserError, unknown
from hff.formatting import BARS

VERBS = {
    "train": "train a method on a network and a data set",
    "eval": "evaluate a run, layer by layer",
    "predict": "classify images with a run, and show the prediction of each layer",
    "explain": "show which parts of an image speak for a class, layer by layer",
    "report": "write a page about runs, with tables, curves and maps",
    "plot": "draw one figure of a report",
    "compare": "train all methods with the same settings, and rank them",
    "bench": "measure time and memory beside backprop",
    "list": "list methods, networks, datasets or recipes",
    "data": "list data sets, download them, or write sample data",
}
MODULES = {"eval": "evaluate", "list": "listing"}
"""Modules whose name differs from that of their verb."""

NO_MEMORY = (
    "There is not enough memory; use a smaller network, smaller inputs or a smaller batch size, or set "
    "micro_batch_size."
)
HELP = """usage: hff VERB ...

Train deep networks without backpropagation through depth.

verbs:
{verbs}

Start with `hff train`, which takes a few seconds.
`hff VERB --help` describes a verb.
"""


OUT_OF_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "not enough memory",
    "Storage size calculation overflow",
)
"""Parts of the messages with which torch says that there is not enough memory."""

IN_ASCII = {**dict(zip(BARS, "_.-:=+*#", strict=True)), "±": "~", "…": "<"}
"""What an output that only knows ASCII shows instead of these characters."""

_interrupted = False


def run(argv: Sequence[str] | None = None) -> int:
    """Runs a command line. Returns the exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    _prepare(is_process=argv is None)
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
        if error.errno == errno.ENOMEM:
            return _fail(NO_MEMORY, 1)
        return _fail(": ".join(str(part) for part in (error.strerror or error, error.filename) if part), 1)
    except MemoryError:
        return _fail(NO_MEMORY, 1)
    except Exception as error:
        if _interrupted:
            # A Ctrl-C while a library was imported comes out as another error.
            return _fail("Interrupted.", 130)
        if isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY):
            return _fail(NO_MEMORY, 1)
        raise


def _prepare(is_process: bool) -> None:
    """Sets up what belongs to the whole process: output streams, warnings and, if it is ours, Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that only knows ASCII gets a replacement instead of an error.
            stream.reconfigure(errors="hff.ascii")
    if is_process:
        warnings.showwarning = _show_warning
        # Pillow warns about images that are too large; they are refused by name.
        warnings.filterwarnings("ignore", r"Image size \(\d+ pixels\) exceeds limit")
        signal.signal(signal.SIGINT, _interrupt)


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replaces each character that a stream cannot encode by one that it can, so tables stay aligned."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(IN_ASCII.get(character, "?") for character in text), error.end


codecs.register_error("hff.ascii", _to_ascii)


def _interrupt(number: int, frame: object) -> None:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    sys.stderr.write(f"hff: {message}\n")


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(HELP.format(verbs="\n".join(f"  {verb:9}{text}" for verb, text in VERBS.items())))
        return 0
    verb, *rest = argv
    _check_text(argv)
    if verb == "--version":
        from hff import __version__

        sys.stdout.write(f"hff {__version__}\n")
        return 0
    if verb not in VERBS:
        raise UsageError(str(unknown("verb", verb, VERBS)))
    module = import_module(f"hff.cli.{MODULES.get(verb, verb)}")
    module.main(rest)
    return 0


def _check_text(argv: Sequence[str]) -> None:
    for argument in argv:
        if "\0" in argument or any("\ud800" <= character <= "\udfff" for character in argument):
            raise UsageError(f"The argument {argument!a} contains characters that are not text.")


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"hff: {message}\n")
    return code
