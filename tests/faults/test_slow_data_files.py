"""Damage to data files: refused in one sentence, or the same data; never accepted if a checksum is published.

Files of the user's own have no checksums. In them, damage to a pixel cannot be noticed.
"""

import gzip
import io
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damage import Read, damaged
from mutations import BYTES, TEXT, pickle_payload
from tiny_files import md5, write_cifar10, write_mnist
from worker import Silent, assert_harmless

from hff.data import DataSet, datasets, load_data
from hff.data.fetching.sources import Checksum
from hff.data.readers.idx import IDX_FILES

pytestmark = pytest.mark.slow

FOLDERS = {"mnist": "mnist", "cifar10": "cifar-10-batches-py"}
CIFAR_FILES = ("data_batch_1", "test_batch", "batches.meta")


@pytest.fixture(autouse=True)
def without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are searched in the folder of the test only, and nothing is downloaded."""
    monkeypatch.delenv("HFF_DATA", raising=False)
    monkeypatch.setattr("hff.data.fetching.files.cache_dir", lambda: tmp_path / "cache" / "data")
    monkeypatch.setattr(datasets, "_items", dict(datasets._items))
    for name in FOLDERS:
        change_source(name, system=(), downloads=())


def change_source(name: str, **fields: Any) -> None:
    info = datasets[name]
    assert info.source is not None
    datasets._items[name] = replace(info, source=replace(info.source, **fields))


def publish(name: str, folder: Path) -> None:
    """Publishes the checksums of the files in a folder."""
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    change_source(name, checksums={file: Checksum(len(c), md5(c)) for file, c in contents.items()})


def loads(name: str) -> Read:
    def load(folder: Path) -> DataSet:
        return load_data(name, data_dir=folder.parent)

    return load


def loads_the_same(name: str, original: DataSet) -> Read:
    def load_unchanged(folder: Path) -> None:
        found = load_data(name, data_dir=folder.parent)
        pairs = ((found.train, original.train), (found.test, original.test))
        same = all(torch.equal(a.x, b.x) and torch.equal(a.labels, b.labels) for a, b in pairs)  # type: ignore[union-attr]
        if not same or found.classes != original.classes:
            raise Silent("the data differ")

    return load_unchanged


@pytest.mark.mutations(80)
@pytest.mark.parametrize("file", [IDX_FILES[0], IDX_FILES[1], IDX_FILES[3]])
@pytest.mark.parametrize("compressed", [False, True])
def test_damage_to_published_idx_files_is_never_accepted(
    file: str, compressed: bool, tmp_path: Path, count: int
) -> None:
    folder = tmp_path / "mnist"
    write_mnist(folder, train=20, compressed=compressed)
    publish("mnist", folder)
    original = load_data("mnist", data_dir=tmp_path)
    file = f"{file}.gz" if compressed else file
    assert_harmless(damaged(folder, file, [loads_the_same("mnist", original)], count, BYTES))


@pytest.mark.mutations(80)
@pytest.mark.parametrize("file", [IDX_FILES[0], IDX_FILES[3]])
@pytest.mark.parametrize("compressed", [False, True])
def test_damage_to_other_idx_files_does_no_harm(
    file: str, compressed: bool, tmp_path: Path, count: int
) -> None:
    folder = tmp_path / "mnist"
    content = write_mnist(folder, train=20, compressed=compressed) and (
        gzip.decompress((folder / f"{file}.gz").read_bytes()) if compressed else (folder / file).read_bytes()
    )
    name, wrap = (f"{file}.gz", gzip.compress) if compressed else (file, bytes)
    assert_harmless(damaged(folder, name, [loads("mnist")], count, BYTES, inner=content, wrap=wrap))


@pytest.mark.mutations(100)
@pytest.mark.parametrize("file", CIFAR_FILES)
def test_damage_to_published_cifar_files_is_never_accepted(
    file: str, tmp_path: Path, marker: Path, count: int
) -> None:
    folder = tmp_path / FOLDERS["cifar10"]
    write_cifar10(folder)
    publish("cifar10", folder)
    original = load_data("cifar10", data_dir=tmp_path)
    kinds = (*BYTES, pickle_payload(marker))
    assert_harmless(damaged(folder, file, [loads_the_same("cifar10", original)], count, kinds), marker)


@pytest.mark.mutations(150)
@pytest.mark.parametrize("file", CIFAR_FILES)
def test_damage_to_other_cifar_files_does_no_harm(
    file: str, tmp_path: Path, marker: Path, count: int
) -> None:
    folder = tmp_path / FOLDERS["cifar10"]
    write_cifar10(folder)
    kinds = (*BYTES, *3 * (pickle_payload(marker),))
    assert_harmless(damaged(folder, file, [loads("cifar10")], count, kinds), marker)


class Payload:
    """Writes the marker when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.marker), "w")


def load_npz(folder: Path) -> DataSet:
    return load_data("npz", path=folder / "own.npz")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with an .npz file."""
    rng = np.random.default_rng(0)
    (tmp_path / "own").mkdir()
    np.savez(
        tmp_path / "own" / "own.npz",
        x=rng.integers(0, 256, (30, 5, 5), dtype=np.uint8),
        y=np.arange(30) % 3,
        x_test=rng.integers(0, 256, (6, 5, 5), dtype=np.uint8),
        y_test=np.arange(6) % 3,
        classes=np.array(["one", "two", "three"]),
    )
    return tmp_path / "own"


@pytest.mark.mutations(200)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damage_to_an_npz_file_does_no_harm(save: Any, own: Path, count: int) -> None:
    save(own / "own.npz", **np.load(own / "own.npz"))
    assert_harmless(damaged(own, "own.npz", [load_npz], count, BYTES))


@pytest.mark.mutations(120)
@pytest.mark.parametrize("member", ["x.npy", "y.npy", "y_test.npy", "classes.npy"])
def test_damage_inside_an_npz_file_does_no_harm(member: str, own: Path, count: int) -> None:
    """The archive is intact, with the right checksums, and one of its arrays is damaged."""
    with zipfile.ZipFile(own / "own.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def wrap(changed: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, changed if name == member else content)
        return file.getvalue()

    header = members[member][:128]
    content = members[member][128:]
    cases = damaged(own, "own.npz", [load_npz], count // 2, BYTES, inner=members[member], wrap=wrap)
    assert_harmless(cases)
    # The header is a dictionary in the syntax of Python.
    cases = damaged(
        own,
        "own.npz",
        [load_npz],
        count // 2,
        TEXT,
        inner=header[10:],
        wrap=lambda h: wrap(header[:10] + h + content),
    )
    assert_harmless(cases)


@pytest.mark.mutations(120)
def test_a_pickle_inside_an_npz_file_is_not_run(own: Path, marker: Path, count: int) -> None:
    arrays = dict(np.load(own / "own.npz"))
    for name in ("x", "y", "classes"):
        payload = np.array([Payload(marker)] * 3, dtype=object)
        np.savez(own / "own.npz", **{**arrays, name: payload})
        assert_harmless(damaged(own, "own.npz", [load_npz], count // 4, BYTES), marker)
    (own / "own.npz").write_bytes(pickle.dumps(Payload(marker)))
    assert_harmless(damaged(own, "own.npz", [load_npz], count // 4, (pickle_payload(marker),)), marker)
