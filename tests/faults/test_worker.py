"""The worker that reads damaged files notices every forbidden outcome, and accepts the others."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker import LARGEST_GROWTH, MEMORY_LIMIT, failures

from hff.errors import UserError


def refuse(message: str) -> None:
    raise UserError(message)


def hang_in_c() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(60)


def test_a_result_and_a_refusal_in_one_sentence_are_fine() -> None:
    assert failures([("a", lambda: 3), ("b", lambda: refuse("It is damaged."))]) == []


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: {}["x"], "KeyError: 'x'"),
        (lambda: refuse("two\nlines."), "not one sentence"),
        (lambda: refuse("no end"), "not one sentence"),
        (lambda: refuse("\ud800."), "not text"),
        (lambda: refuse("x" * 2000 + "."), "a message of 2001 characters"),
        (lambda: time.sleep(9), "took more than 0.5 seconds"),
        (lambda: np.ones(2 * LARGEST_GROWTH, np.uint8), "MB of memory"),
        (lambda: bytearray(2 * MEMORY_LIMIT), "MemoryError"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "the process ended with status"),
        (lambda: os.system("true"), "os.system"),
        (lambda: subprocess.run(["true"]), "subprocess.Popen"),
    ],
)
def test_forbidden_outcomes_are_named(read: Any, words: str) -> None:
    found = failures([("good", lambda: None), ("bad 7", read)], seconds=0.5)
    assert len(found) == 1
    assert found[0].startswith("bad 7: ")
    assert words in found[0]


def test_a_file_that_a_payload_writes_is_noticed(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    found = failures([("a", lambda: marker.write_text("")), ("b", lambda: None)], marker)
    assert found == ["a: ran code from the file"]


def test_the_first_case_is_named_that_never_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.PATIENCE", 1.0)
    assert failures([("a", lambda: None), ("b", hang_in_c)], seconds=0.5) == [
        "b: the process ended with status 9"
    ]
