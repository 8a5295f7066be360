"""Reads damaged files in a child process with limits on memory and time, and collects what went wrong."""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from hff.errors import UserError

MEGABYTE = 2**20
LARGEST_GROWTH = 256 * MEGABYTE
"""The memory that reading a damaged file of a few kilobytes may take at its peak."""
MEMORY_LIMIT = 4 * LARGEST_GROWTH
"""The memory at which the system refuses to give more."""
LONGEST = 5.0
"""The seconds that one case may take. Most take milliseconds; the rest is for a busy machine."""
PATIENCE = 20.0
"""The seconds after which a process that reports nothing is killed."""
LONGEST_MESSAGE = 1000
FORBIDDEN = (
    *("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect"),
    *("ctypes.dlopen", "shutil.rmtree"),
)
"""Events of the interpreter that no reader may cause."""

Case = tuple[str, Callable[[], Any]]
"""A name, such as "config.yaml 17", and a function that reads a damaged file."""


class Silent(Exception):
    """Damage was accepted although the file has a checksum."""


class _TooSlow(BaseException):
    """Not an `Exception`, so that no reader catches it."""


def assert_harmless(cases: Iterable[Case], marker: Path | None = None) -> None:
    """Fails with a line for each case that had a forbidden outcome; see `failures`."""
    found = failures(cases, marker)
    assert not found, "\n".join([f"{len(found)} forbidden outcomes:", *found])


def failures(cases: Iterable[Case], marker: Path | None = None, seconds: float = LONGEST) -> list[str]:
    """Runs all cases in a forked process. Returns a line for each case with a forbidden outcome.

    A case may return, or raise a `UserError` with a message of one line. Every other exception, too much
    memory or time, the end of the process, and code that was run are failures.

    Args:
        cases: the cases. They are made in the child process.
        marker: the file that the payloads in damaged files would write.
        seconds: the time limit of a case.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run(cases, marker, seconds, writer)
    os.close(writer)
    found, running = [], "the start"
    for kind, text in _messages(reader, child):
        if kind == "begin":
            running = text
        else:
            found.append(text)
    _, status = os.waitpid(child, 0)
    if status:
        found.append(f"{running}: the process ended with status {status}")
    return found


def _messages(reader: int, child: int) -> Iterator[list[str]]:
    """The messages of the child. It is killed if it sends nothing for a long time."""
    pending = b""
    while True:
        ready, _, _ = select.select([reader], [], [], PATIENCE)
        if not ready:
            os.kill(child, signal.SIGKILL)
        content = os.read(reader, 65536)
        if not content:
            break
        *lines, pending = (pending + content).split(b"\n")
        yield from map(json.loads, lines)
    os.close(reader)


def _run(cases: Iterable[Case], marker: Path | None, seconds: float, writer: int) -> NoReturn:
    """The child process."""
    code = 1
    try:

        def send(kind: str, text: str) -> None:
            os.write(writer, json.dumps([kind, text]).encode() + b"\n")

        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        events: list[str] = []
        sys.addaudithook(lambda event, _: events.append(event) if event in FORBIDDEN else None)
        signal.signal(signal.SIGALRM, _alarm)
        size = _memory("VmSize")
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_LIMIT, size + MEMORY_LIMIT))
        for name, read in cases:
            send("begin", name)
            if problem := _problem(read, seconds, marker, events):
                send("failure", f"{name}: {problem}"[:1000])
        code = 0
    except BaseException as error:
        os.write(2, f"The list of cases failed: {error!r}\n".encode())
    finally:
        # Not sys.exit: pytest must not go on in the child.
        os._exit(code)


def _problem(read: Callable[[], Any], seconds: float, marker: Path | None, events: list[str]) -> str | None:
    """What is wrong with the outcome of a case; None if nothing is."""
    events.clear()
    _forget_peak()
    before = _memory("VmRSS")
    problem = None
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        read()
    except UserError as error:
        problem = _fault_of_message(str(error))
    except _TooSlow:
        problem = f"took more than {seconds:g} seconds"
    except BaseException as error:
        problem = f"{type(error).__name__}: {error} ({_place(error)})"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    grown = _memory("VmHWM") - before
    if grown > LARGEST_GROWTH:
        problem = f"took {grown // MEGABYTE} MB of memory"
    if events:
        problem = f"caused {events[0]}"
    if marker is not None and marker.exists():
        marker.unlink()
        problem = "ran code from the file"
    return problem


def _fault_of_message(message: str) -> str | None:
    try:
        message.encode()
    except UnicodeEncodeError:
        return f"a message that is not text: {message!a}"
    if "\n" in message or not message.rstrip().endswith((".", "?")) or "Traceback" in message:
        return f"a message that is not one sentence: {message!a}"
    if len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message)} characters: {message[:100]!a}"
    return None


def _place(error: BaseException) -> str:
    """The last line of this library in the traceback."""
    place, trace = "outside the library", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if f"{os.sep}hff{os.sep}" in file:
            place = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _alarm(number: int, frame: object) -> NoReturn:
    raise _TooSlow


def _memory(field: str) -> int:
    """A line of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    """Lets VmHWM start from the current memory, where the system permits it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
