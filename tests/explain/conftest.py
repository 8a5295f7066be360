"""Trained runs and methods to explain."""

from pathlib import Path

import pytest

from hff.cli import main


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HFF on digits with a small CNN; the weights of its first epochs are kept."""
    folder = tmp_path_factory.mktemp("explained") / "run"
    argv = ["train", "--network", "cnn", "--network.channels", "8,16", "--epochs", "3", "--quiet"]
    assert main([*argv, "--keep-checkpoints", "1,2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def backprop_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained") / "backprop"
    argv = ["train", "--method", "backprop", "--network.widths", "32", "--epochs", "2", "--quiet"]
    assert main([*argv, "--out", str(folder)]) == 0
    return folder
