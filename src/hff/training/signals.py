"""Stopping a training by a signal, after the current step."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def stop_on_signal(stop: threading.Event, active: bool) -> Iterator[None]:
    """Sets the event on the first Ctrl-C or SIGTERM, to stop after the step; a second one stops at once."""
    if not active or threading.current_thread() is not threading.main_thread():
        yield
        return

    def request(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
