"""A training on the command line gives the same result if it is killed at random moments and resumed."""

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hff.training import Run

HFF = [sys.executable, "-m", "hff"]
FLAGS = ["--epochs", "40", "--network.widths", "128,128", "--checkpoint-seconds", "0", "--quiet"]


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "seconds"}


@pytest.mark.slow
def test_a_run_killed_twelve_times_gives_the_same_result(tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    subprocess.run([*HFF, "train", *FLAGS, "--out", straight], check=True)
    draw = random.Random(0)
    kills = 0
    command = [*HFF, "train", *FLAGS, "--out", str(killed)]
    while not (killed / "summary.json").exists():
        process = subprocess.Popen(command)
        if kills < 12:
            # Wait until the training has started, then a little longer.
            while not (killed / "checkpoint.safetensors").exists() and process.poll() is None:
                time.sleep(0.05)
            time.sleep(draw.uniform(2.0, 6.0) if kills else 0.3)
        else:
            process.wait()
        kills += process.poll() is None
        process.kill()
        process.wait()
        command = [*HFF, "train", "--resume", str(killed), "--quiet"]
    assert kills >= 2, "the training finished before it could be killed"
    one, other = Run.open(straight), Run.open(killed)
    assert [timeless(r) for r in one.metrics()] == [timeless(r) for r in other.metrics()]
    (tensors, _), (others, _) = one.load() or ({}, {}), other.load() or ({}, {})
    assert tensors
    assert all(torch.equal(t, others[name]) for name, t in tensors.items())
