"""Fixtures that run commands in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hff.cli import main

TINY = ["--network.widths", "32,16", "--epochs", "1"]
Answer = Callable[[list[str]], Any]


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "--network.widths", "48,32", "--epochs", "6", "--quiet", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "group"
    assert main(["train", *TINY, "--seeds", "0,1", "--quiet", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    for name in ("b.png", "a.png", "more/c.png"):
        Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10)).save(folder / name)
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Answer:
    """A function that runs a command with --json and returns the document it prints."""

    def ask(argv: list[str]) -> Any:
        assert main([*argv, "--json"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return json.loads(printed.out)

    return ask
