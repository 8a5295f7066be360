"""Two processes resume the same folder at once: one of them trains, the other one is refused.

After the first is killed, its lock does not block the next one, and the result is the undisturbed one.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from hff.comparison import Comparison, ComparisonListener, ComparisonSettings
from hff.experiment import Experiment, resume, train
from hff.run_group import RunGroup
from hff.training import Listener, Run

pytestmark = pytest.mark.slow

EPOCHS = 240
"""One training must last longer than the difference of the times at which two processes start."""


class StopAfterFirstEpoch(Listener):
    def epoch_ended(self, record: dict[str, Any]) -> None:
        raise KeyboardInterrupt


class StopTheFirstMethod(ComparisonListener):
    def listener(self, method: str, number: int) -> Listener:
        return StopAfterFirstEpoch()


def experiment(epochs: int) -> Experiment:
    data = {"name": "digits", "limit": 100}
    network = {"name": "mlp", "widths": [16, 16]}
    return Experiment.from_mapping({"data": data, "network": network, "epochs": epochs, "batch_size": 128})


@dataclass(frozen=True)
class Kind:
    """A folder that can be resumed."""

    verb: str
    start: Callable[[Path, bool], Any]
    """Trains from the start; stops after the first epoch if the second argument is true."""
    resume: Callable[[Path], Any]
    runs: tuple[str, ...]


def start_run(folder: Path, stopped: bool) -> None:
    train(experiment(EPOCHS), folder, device="cpu", listener=StopAfterFirstEpoch() if stopped else None)


def start_group(folder: Path, stopped: bool) -> None:
    listener = StopAfterFirstEpoch() if stopped else Listener()
    RunGroup.create(folder, experiment(EPOCHS // 2), (3, 4)).train(device="cpu", listener=lambda _: listener)


def start_comparison(folder: Path, stopped: bool) -> None:
    tiny = experiment(EPOCHS // 2)
    settings = ComparisonSettings(tiny.data, tiny.network, epochs=EPOCHS // 2, batch_size=128)
    comparison = Comparison(folder, settings, ["backprop", "mono_forward"], device="cpu")
    comparison.run(StopTheFirstMethod() if stopped else None)


KINDS = {
    "run": Kind("train", start_run, lambda folder: resume(Run.open(folder), device="cpu"), ("",)),
    "seeds": Kind(
        "train",
        start_group,
        lambda folder: RunGroup.open(folder).train(device="cpu"),
        ("seed-3", "seed-4"),
    ),
    "comparison": Kind(
        "compare",
        start_comparison,
        lambda folder: Comparison.open(folder, device="cpu").run(),
        ("backprop", "mono_forward"),
    ),
}


def resume_in_a_process(verb: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "hff", verb, "--resume", str(folder), "--device", "cpu", "--quiet"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def records(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in r.items() if key != "seconds"} for r in run.metrics()]


@pytest.mark.parametrize("name", KINDS)
def test_one_of_two_processes_trains_and_its_lock_ends_with_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 10**6)
    kind = KINDS[name]
    straight, folder = tmp_path / "straight", tmp_path / "folder"
    kind.start(straight, False)
    with pytest.raises(KeyboardInterrupt):
        kind.start(folder, True)
    if name == "comparison":
        # Measuring memory takes longer than the rest.
        for method in kind.runs:
            Run(folder / method).add_cost({"peak_memory": 10**6})

    processes = [resume_in_a_process(kind.verb, folder) for _ in range(2)]
    try:
        deadline = time.monotonic() + 120
        while all(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.02)
        ended = [process for process in processes if process.poll() is not None]
        assert len(ended) == 1, "exactly one process must be refused"
        assert ended[0].returncode == 1
        assert ended[0].stderr is not None
        message = ended[0].stderr.read()
        assert message.startswith(f"hff: Another process is writing to {folder}")
        assert message.count("\n") == 1
        owner = next(process for process in processes if process is not ended[0])
        first = Run(folder / kind.runs[0])
        while owner.poll() is None and len(first.metrics()) < 5:
            time.sleep(0.02)
        assert owner.poll() is None, "the training must not end before it is killed"
    finally:
        for process in processes:
            process.kill()
            process.wait()
    epochs = [record["epoch"] for record in first.metrics()]
    assert epochs == list(range(1, len(epochs) + 1))

    kind.resume(folder)
    for run in kind.runs:
        one, other = Run(straight / run), Run(folder / run)
        assert records(one) == records(other)
        assert other.failure() is None
        (tensors, _), (others, _) = one.load() or ({}, {}), other.load() or ({}, {})
        assert tensors.keys() == others.keys() != set()
        assert all(torch.equal(tensor, others[key]) for key, tensor in tensors.items())
