"""Runs to report on, and a report about them."""

from pathlib import Path

import pytest

from hff.cli import main
from hff.report import ReportFiles, write_report

SMALL = ["--network.widths", "24,16", "--epochs", "2", "--quiet"]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of HFF, one of backprop, and one with two seeds."""
    folder = tmp_path_factory.mktemp("reported")
    assert main(["train", *SMALL, "--keep-checkpoints", "1", "--out", str(folder / "first")]) == 0
    assert main(["train", *SMALL, "--method", "backprop", "--out", str(folder / "second")]) == 0
    assert main(["train", *SMALL, "--seeds", "0,1", "--out", str(folder / "group")]) == 0
    return folder


@pytest.fixture(scope="session")
def one(runs: Path) -> ReportFiles:
    """A report about one run."""
    return write_report(
        [runs / "first"], runs / "one", projection="pca", images=2, command="hff report first"
    )


@pytest.fixture(scope="session")
def several(runs: Path) -> ReportFiles:
    """A report about several runs."""
    folders = [runs / name for name in ("first", "second", "group")]
    return write_report(folders, runs / "several", projection="pca", images=1)
