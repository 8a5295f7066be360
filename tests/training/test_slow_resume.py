"""A training on the command line gives the same result if it is killed at random moments and resumed."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hff.cli import main
from hff.training import Run

KILLS = 12
FLAGS = ["--epochs", "12", "--network.widths", "64,64", "--checkpoint-seconds", "0", "--quiet"]


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "seconds"}


def started(argv: list[str]) -> int:
    """The number of a new process that runs a command. A fork need not import anything."""
    process = os.fork()
    if process == 0:
        try:
            os._exit(main(argv))
        finally:
            os._exit(1)
    return process


@pytest.mark.slow
def test_a_run_killed_twelve_times_gives_the_same_result(tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    checkpoint = killed / "checkpoint.safetensors"
    assert main(["train", *FLAGS, "--out", str(straight)]) == 0
    draw = random.Random(0)
    command = ["train", *FLAGS, "--out", str(killed)]
    for _ in range(KILLS):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = started(command)
        # Wait until the training has gone on, then a little longer.
        while not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before:
            assert os.waitpid(process, os.WNOHANG) == (0, 0), "the training ended by itself"
            time.sleep(0.001)
        time.sleep(draw.uniform(0.0, 0.05))
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        assert os.WIFSIGNALED(status), "the training finished before it could be killed"
        command = ["train", "--resume", str(killed), "--quiet"]
    assert main(command) == 0
    one, other = Run.open(straight), Run.open(killed)
    assert [timeless(r) for r in one.metrics()] == [timeless(r) for r in other.metrics()]
    (tensors, _), (others, _) = one.load() or ({}, {}), other.load() or ({}, {})
    assert tensors
    assert tensors.keys() == others.keys()
    assert all(torch.equal(t, others[name]) for name, t in tensors.items())
