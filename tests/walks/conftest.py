"""Walks: what a new user does, with the commands and files of a new user."""

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

WIDTH = 80


class Shell:
    """Runs commands in a folder as a user would.

    Args:
        folder: the folder that the user is in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = 0
        """The number of commands so far."""
        self.environment = {**os.environ, "COLUMNS": str(WIDTH), "OMP_NUM_THREADS": "1"}

    def run(self, command: str, code: int = 0) -> str:
        """Runs a command and returns what it prints. No command may end in a traceback."""
        self.commands += 1
        done = subprocess.run(
            self._argv(command.split()),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        printed = done.stdout + done.stderr
        assert "Traceback" not in printed, printed
        assert done.returncode == code, printed
        return printed

    def on_terminal(self, command: str) -> str:
        """Runs a command on a terminal of 80 columns and returns what it writes, with its control codes."""
        self.commands += 1
        leader, follower = pty.openpty()
        environment = {**self.environment, "TERM": "xterm"}
        process = subprocess.Popen(
            ["sh", "-c", 'stty cols 80 rows 24; exec "$@"', "sh", *self._argv(command.split())],
            cwd=self.folder,
            env=environment,
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        written = b""
        while select.select([leader], [], [], 120)[0]:
            try:
                part = os.read(leader, 65536)
            except OSError:  # Linux reports the end of a terminal as an error.
                break
            if not part:
                break
            written += part
        os.close(leader)
        assert process.wait(timeout=60) == 0, written.decode()
        return written.decode()

    def python(self, program: str) -> str:
        """Runs a Python program and returns what it prints."""
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _argv(self, words: Sequence[str]) -> list[str]:
        """The command line, with the `hff` of this environment."""
        first, *rest = words
        assert Path(first).name == "hff", f"not a command of hff: {first}"
        return [sys.executable, "-m", "hff", *rest]


def suggested(printed: str, verb: str) -> str:
    """The command with this verb that the output of another command suggests."""
    found = re.search(rf"\S*(?:hff|python\S* -m hff) ({verb} [^\n`]+)", printed)
    assert found, printed
    return f"hff {found[1]}"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
