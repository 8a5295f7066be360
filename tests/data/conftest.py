"""A machine on which no data set lies."""

from dataclasses import replace
from pathlib import Path

import pytest

from hff.data.fetching.sources import sources


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment's folder, the cache or the system's folders; neither npm nor network."""
    monkeypatch.delenv("HFF_DATA", raising=False)
    monkeypatch.setattr("hff.data.fetching.files.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("shutil.which", lambda _: None)
    for name, source in list(sources.items()):
        monkeypatch.setitem(sources, name, replace(source, system=(), downloads=()))
