"""All tests of this folder run as on a machine without data sets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_files import ChangeSource

from hff.data import datasets


@pytest.fixture
def change_source(monkeypatch: pytest.MonkeyPatch) -> ChangeSource:
    """Replaces fields of the source of a data set for one test."""
    monkeypatch.setattr(datasets, "_items", dict(datasets._items))

    def change(name: str, **fields: Any) -> None:
        info = datasets[name]
        assert info.source is not None
        datasets._items[name] = replace(info, source=replace(info.source, **fields))

    return change


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change_source: ChangeSource) -> None:
    """No files in the folder of HFF_DATA, the cache or the system folders, no npm and no network."""
    monkeypatch.delenv("HFF_DATA", raising=False)
    monkeypatch.setattr("hff.data.fetching.files.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("shutil.which", lambda _: None)
    for name, info in datasets.items():
        if info.source is not None:
            change_source(name, system=(), downloads=())
