"""Runs `hff train` and `hff eval` for benchmarks: skips finished runs and resumes interrupted ones.

Runs are stored in runs/ of the working directory. Each uses one process with one thread.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collect import EVALUATION, tuning_row

from hff.training import Run

Row = dict[str, Any]


def trained(arguments: Sequence[str]) -> Run:
    """The finished run of `hff train` with these arguments; the last argument is the name of the run."""
    folder = Path("runs", f"{arguments[-1]}-seed0")
    begun = (folder / "config.yaml").exists()
    if not begun or not Run.open(folder).finished:
        _hff(["train", *(("--resume", str(folder)) if begun else arguments)])
    return Run.open(folder)


def evaluated(arguments: Sequence[str]) -> Run:
    """The same, evaluated on the test split."""
    run = trained(arguments)
    if not (run.folder / EVALUATION).exists():
        _hff(["eval", str(run.folder), "--json"])
    return run


def trial(arguments: Sequence[str], varied: str) -> Row:
    """Row of results/tuning.csv for a short run; `varied` names what differs from other trials."""
    return tuning_row(trained(arguments).folder, varied)


def best_of(found: Mapping[float, Row]) -> float:
    """Rate with the highest validation accuracy."""
    return max(found, key=lambda rate: float(found[rate]["validation_accuracy"]))


def _hff(arguments: Sequence[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "hff", *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
    )
