"""Arrays in an .npz file. The checks of the arrays themselves are in `test_data_arrays`."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hff.data import TensorExamples, load_data
from hff.errors import UserError

TABLE = np.random.default_rng(0).normal(5, 3, (50, 4))
LABELS = np.arange(50) % 2
WORDS = np.array(["dog", "cat"])[LABELS]


def saved(tmp_path: Path, **arrays: Any) -> Path:
    path = tmp_path / "own.npz"
    np.savez(path, **arrays)
    return path


def test_a_fifth_is_carved_for_testing_with_every_seed(tmp_path: Path) -> None:
    path = saved(tmp_path, x=TABLE, y=LABELS)
    first, second = (load_data("npz", path=path, seed=seed).test for seed in (0, 1))
    assert isinstance(first, TensorExamples)
    assert isinstance(second, TensorExamples)
    assert torch.bincount(first.labels).tolist() == [5, 5]
    assert torch.equal(first.x, second.x)


def test_all_arrays(tmp_path: Path) -> None:
    splits = {"x_test": TABLE[:2], "y_test": WORDS[:2], "x_validation": TABLE[:3], "y_validation": WORDS[:3]}
    data = load_data("npz", path=saved(tmp_path, x=TABLE, y=WORDS, **splits, classes=["dog", "cow", "cat"]))
    assert data.classes == ("dog", "cow", "cat")
    assert data.validation is not None
    assert data.test is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (50, 3, 2)
    assert data.test.labels.tolist() == [0, 2]
    assert len(load_data("npz", path=tmp_path / "own.npz", classes=2).validation or ()) == 2


def test_class_names_in_bytes(tmp_path: Path) -> None:
    path = saved(tmp_path, x=TABLE, y=LABELS, classes=np.array([b"cat", b"dog"]))
    assert load_data("npz", path=path).classes == ("cat", "dog")


def test_images_are_resized(tmp_path: Path) -> None:
    images = np.full((50, 6, 7, 3), 9, dtype=np.uint8)
    data = load_data(
        "npz", path=saved(tmp_path, x=images, y=LABELS, x_validation=images, y_validation=LABELS), size=4
    )
    assert data.in_shape == (3, 4, 4)
    for split in (data.train, data.validation, data.test):
        assert isinstance(split, TensorExamples)
        assert split.x.shape[1:] == (3, 4, 4)


@pytest.mark.parametrize("content", [b"", b"words", b"PK\x03\x04 cut off"])
def test_files_in_another_format_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "own.npz"
    with pytest.raises(UserError, match="There is no file"):
        load_data("npz", path=path)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"own\.npz cannot be read"):
        load_data("npz", path=path)


def test_wrong_arrays_are_refused_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with path.open("wb") as file:
        np.save(file, TABLE)
    with pytest.raises(UserError, match=r"own\.npz cannot be read"):
        load_data("npz", path=path)
    with pytest.raises(UserError, match=r"x in .*own\.npz is an array of Python objects.*x\.astype\(float\)"):
        load_data("npz", path=saved(tmp_path, x=np.array([{}] * 50), y=LABELS))
    with pytest.raises(UserError, match=r"y in .*own\.npz is an array of Python objects.*y\.astype\(str\)"):
        load_data("npz", path=saved(tmp_path, x=TABLE, y=WORDS.astype(object)))
    with pytest.raises(UserError, match="does not hold an array 'y'"):
        load_data("npz", path=saved(tmp_path, x=TABLE))
    with pytest.raises(UserError, match=r"y in .*own\.npz holds one class only"):
        load_data("npz", path=saved(tmp_path, x=TABLE, y=LABELS * 0))


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (np.arange(50) % 3 + 1, ("1", "2", "3")),
        (LABELS * 5, ("0", "5")),
        (LABELS.astype(float), ("0", "1")),
        (LABELS.astype(bool), ("0", "1")),
        (WORDS, ("cat", "dog")),
        (WORDS.astype(object).astype(str), ("cat", "dog")),
    ],
)
def test_labels_are_mapped(tmp_path: Path, y: Any, names: tuple[str, ...]) -> None:
    assert load_data("npz", path=saved(tmp_path, x=TABLE, y=y)).classes == names


def packed(path: Path, kind: int, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def npy(header: str, content: bytes = b"") -> bytes:
    padded = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + content


Y = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}", b"\0\1\0\1")


@pytest.mark.parametrize(
    "kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_flipped_bytes_are_refused_or_harmless(tmp_path: Path, kind: int) -> None:
    buffer = io.BytesIO()
    np.save(buffer, TABLE)
    whole = packed(
        tmp_path / "whole.npz",
        kind,
        x=buffer.getvalue(),
        y=npy("{'descr': '|u1', 'fortran_order': False, 'shape': (50,)}", LABELS.astype(np.uint8).tobytes()),
    ).read_bytes()
    rng = np.random.default_rng(0)
    path, messages = tmp_path / "own.npz", []
    for _ in range(60):
        content = bytearray(whole)
        content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        path.write_bytes(content[: rng.integers(1, len(content))] if rng.random() < 0.2 else content)
        try:
            load_data("npz", path=path)
        except UserError as error:
            messages.append(str(error))
    assert len(messages) > 40
    assert all("own.npz" in message for message in messages)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10" + "0" * 30 + ", 2)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-4, -2)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2)}" + " " * 60000,
        "(" * 9000,
        "{'descr': '<f8'",
    ],
)
def test_false_headers(tmp_path: Path, header: str) -> None:
    path = packed(tmp_path / "own.npz", zipfile.ZIP_DEFLATED, x=npy(header, bytes(64)), y=Y)
    with pytest.raises(UserError, match=r"own\.npz cannot be read"):
        load_data("npz", path=path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hff.data.readers.npz_file.SUSPICIOUS_SIZE", 2**20)
    zeros = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4, 1000000)}", bytes(4_000_000))
    path = packed(tmp_path / "own.npz", zipfile.ZIP_DEFLATED, x=zeros, y=Y)
    with pytest.raises(UserError, match=r"x would grow from 0\.0 MB to 4\.0 MB when it is unpacked"):
        load_data("npz", path=path)


def test_a_false_size_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "own.npz", zipfile.ZIP_DEFLATED, x=Y, y=Y)
    content = path.read_bytes()
    size, claimed = struct.pack("<I", len(Y)), struct.pack("<I", 2**32 - 2)
    at = content.index(b"PK\x01\x02")
    path.write_bytes(content[:at] + content[at:].replace(size, claimed))
    with pytest.raises(UserError, match=r"x claims to hold 4\.3 GB, which is more than the file can hold"):
        load_data("npz", path=path)


def test_arrays_that_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hff.data.readers.npz_file.available_memory", lambda: 3000)
    with pytest.raises(UserError, match=r"more than half of the .* of available memory; save fewer examples"):
        load_data("npz", path=saved(tmp_path, x=TABLE, y=LABELS))


def test_a_table_cannot_be_resized_or_augmented(tmp_path: Path) -> None:
    path = saved(tmp_path, x=TABLE, y=LABELS)
    with pytest.raises(UserError, match="does not have a size"):
        load_data("npz", path=path, size=8)
    with pytest.raises(UserError, match="cannot be augmented by 'flip'"):
        load_data("npz", path=path, augment="flip")
