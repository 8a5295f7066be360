"""A disk that is full at any moment of a comparison leaves no file behind that breaks it later."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hff.comparison import Comparison, ComparisonSettings
from hff.experiment import Experiment
from hff.training import Run

pytestmark = pytest.mark.slow

TINY = Experiment.from_mapping(
    {"data": {"name": "digits", "limit": 100}, "network": {"name": "mlp", "widths": [12]}}
)
FULL = OSError(errno.ENOSPC, "No space left on device")


def compare(folder: Path) -> list[dict[str, Any]]:
    """Runs the comparison, and returns its metrics and accuracies without measured times."""
    settings = ComparisonSettings(TINY.data, TINY.network, epochs=2)
    [result] = Comparison(folder, settings, ["backprop"], device="cpu").run()
    run = Run(folder / "backprop")
    records = [{key: value for key, value in r.items() if key != "seconds"} for r in run.metrics()]
    facts = {"validation": result.validation_accuracy, "test": result.test_accuracy}
    return [*records, {**facts, "epochs": result.epochs, "failure": result.failure}]


@pytest.fixture(autouse=True)
def known_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring memory starts a process."""
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 10**6)


def test_a_comparison_resumes_after_a_disk_that_was_full_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = compare(tmp_path / "undisturbed")
    synced, room = os.fsync, 0

    def fsync(handle: int) -> None:
        """Fails for the file after the first `room` files; folders are always synced."""
        nonlocal written
        if stat.S_ISREG(os.fstat(handle).st_mode):
            if written == room:
                raise FULL
            written += 1
        synced(handle)

    while True:
        written, folder = 0, tmp_path / str(room)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            try:
                compare(folder)
                break
            except OSError as error:
                reason = error.errno
        assert reason == errno.ENOSPC
        assert not list(folder.rglob("*.partial"))
        assert compare(folder) == undisturbed, f"the disk was full after {room} files"
        room += 1
    assert room > 10


def test_a_half_written_line_of_metrics_does_not_break_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = compare(tmp_path / "undisturbed")

    def append_half(run: Run, record: dict[str, Any]) -> None:
        line = json.dumps(record)
        with (run.folder / "metrics.jsonl").open("a") as file:
            file.write(line + "\n" if record["epoch"] < broken else line[: len(line) // 2])
        if record["epoch"] == broken:
            raise FULL

    for broken in (1, 2):
        folder = tmp_path / str(broken)
        with monkeypatch.context() as patch:
            patch.setattr(Run, "append_metrics", append_half)
            with pytest.raises(OSError, match="No space left"):
                compare(folder)
        assert compare(folder) == undisturbed
