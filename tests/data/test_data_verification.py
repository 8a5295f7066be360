"""Verifying the files of public data sets against their published checksums."""

import json
import os
import pickle
from pathlib import Path

import pytest
from tiny_files import ChangeSource, md5, write_cifar10, write_mnist

from hff.data import datasets, load_data
from hff.data.fetching import verification
from hff.data.fetching.sources import Checksum, Download
from hff.data.readers.idx import IDX_FILES
from hff.errors import UserError

PUBLIC = {name: info.source for name, info in datasets.items() if info.source}


def declare(folder: Path, name: str, change_source: ChangeSource) -> None:
    """Publishes the checksums of all files in a folder."""
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    change_source(name, checksums={file: Checksum(len(c), md5(c)) for file, c in contents.items()})


def flip(file: Path, at: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", [IDX_FILES[0], IDX_FILES[3]])
def test_a_flipped_bit_in_mnist_is_refused(tmp_path: Path, change_source: ChangeSource, name: str) -> None:
    write_mnist(tmp_path / "mnist")
    declare(tmp_path / "mnist", "mnist", change_source)
    load_data("mnist", data_dir=tmp_path)
    flip(tmp_path / "mnist" / name)
    with pytest.raises(UserError, match=rf"{name} is damaged \(the content is not .* `hff data get mnist`"):
        load_data("mnist", data_dir=tmp_path)


def test_all_damaged_files_of_cifar_are_named(tmp_path: Path, change_source: ChangeSource) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    declare(folder, "cifar10", change_source)
    load_data("cifar10", data_dir=tmp_path)
    flip(folder / "data_batch_2", 9000)
    flip(folder / "batches.meta", 60)
    with pytest.raises(UserError, match=r"batches\.meta and .*data_batch_2 are damaged"):
        load_data("cifar10", data_dir=tmp_path)


def test_compressed_files_have_the_checksum_of_the_download(
    tmp_path: Path, change_source: ChangeSource
) -> None:
    write_mnist(tmp_path / "mnist", compressed=True)
    files = {file.name: file.read_bytes() for file in (tmp_path / "mnist").iterdir()}
    downloads = tuple(Download(name, (), md5(content), size=len(content)) for name, content in files.items())
    change_source("mnist", downloads=downloads)
    load_data("mnist", data_dir=tmp_path)
    # A bit of the header that gzip ignores.
    flip(tmp_path / "mnist" / f"{IDX_FILES[1]}.gz", 5)
    with pytest.raises(UserError, match=r"labels-idx1-ubyte\.gz is damaged"):
        load_data("mnist", data_dir=tmp_path)


def test_files_of_another_size_are_the_users_own(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    assert len(load_data("mnist", data_dir=tmp_path, validation=0).train) == 40
    assert not (tmp_path / verification.MEMORY).exists()


def test_a_file_of_another_size_beside_published_files_is_damaged(
    tmp_path: Path, change_source: ChangeSource
) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    declare(folder, "cifar10", change_source)
    names = [f"other {i}" for i in range(10)]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}, protocol=2))
    for _ in range(2):  # the second time, the other files are remembered as verified
        with pytest.raises(
            UserError, match=r"batches\.meta is damaged \(the content is not the published one"
        ):
            load_data("cifar10", data_dir=tmp_path)


def test_each_file_is_verified_once(
    tmp_path: Path, change_source: ChangeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "mnist")
    declare(tmp_path / "mnist", "mnist", change_source)
    read: list[str] = []
    original = verification.checksum
    monkeypatch.setattr(verification, "checksum", lambda path: read.append(path.name) or original(path))
    load_data("mnist", data_dir=tmp_path)
    assert read == sorted(IDX_FILES)
    load_data("mnist", data_dir=tmp_path)
    assert len(read) == 4
    os.utime(tmp_path / "mnist" / IDX_FILES[0], ns=(1, 1))
    load_data("mnist", data_dir=tmp_path)
    assert read[4:] == [IDX_FILES[0]]
    memory = tmp_path / verification.MEMORY
    assert len(json.loads(memory.read_text())) == 4
    for damage in ("[" * 100_000, "[1]", "", "\xff"):
        memory.write_text(damage, encoding="latin1")
        load_data("mnist", data_dir=tmp_path)
        assert len(json.loads(memory.read_text())) == 4


def test_a_cache_that_cannot_be_written(
    tmp_path: Path, change_source: ChangeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "mnist")
    declare(tmp_path / "mnist", "mnist", change_source)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("hff.data.fetching.files.cache_dir", lambda: tmp_path / "file" / "cache" / "data")
    load_data("mnist", data_dir=tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_public_files_have_sizes_and_checksums(name: str) -> None:
    source = PUBLIC[name]
    assert source is not None
    assert all(item.size for item in source.downloads)
    assert all(source.published(file) is not None for file in source.layouts[0])
    sizes = [known.size for known in source.checksums.values()]
    assert all(len(known.md5) == 32 for known in source.checksums.values())
    if name.endswith("mnist"):
        assert sizes == [16 + 60000 * 784, 8 + 60000, 16 + 10000 * 784, 8 + 10000]
    else:
        # The names of the classes are in a file of their own.
        assert set(source.checksums) - set(source.layouts[0]) <= {"batches.meta", "meta"}
        assert len(source.checksums) == len(source.layouts[0]) + 1
