"""The file formats of MNIST and CIFAR: valid, damaged and malicious files."""

import codecs
import gzip
import os
import pickle
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_files import cifar_rows, idx, write_cifar10

from hff.data import ReadRequest, datasets
from hff.data.readers.cifar import CifarReader, read_cifar_binary, read_cifar_pickle
from hff.data.readers.idx import read_idx_file
from hff.data.readers.plain_pickle import read_pickle
from hff.errors import UserError

MNIST, FASHION, CIFAR10, CIFAR100 = (
    ReadRequest(name, datasets[name]) for name in ("mnist", "fashion_mnist", "cifar10", "cifar100")
)
LABELS = idx(np.array([3, 1, 4], dtype=np.uint8))


def test_idx_plain_and_compressed(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "plain").write_bytes(idx(array))
    (tmp_path / "small.gz").write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(read_idx_file(tmp_path / "plain", 3, MNIST), array)
    np.testing.assert_array_equal(read_idx_file(tmp_path / "small.gz", 3, MNIST), array)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "does not start"),
        (b"<html>not here</html>", "does not start"),
        (LABELS[:3], "does not start"),
        (idx(np.zeros((1, 2), dtype=np.uint8)), "does not start"),
        (LABELS[:-1], "should hold 3 bytes and holds 2"),
        (LABELS + b"x", "should hold 3 bytes and holds 4"),
        (struct.pack(">4BI", 0, 0, 8, 1, 2**32 - 1) + b"abc", "should hold 4294967295 bytes and holds 3"),
    ],
)
def test_damaged_idx(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "labels"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as error:
        read_idx_file(path, 1, MNIST)
    assert str(path) in str(error.value)
    assert "delete it and run `hff data get mnist`" in str(error.value)


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(idx(np.random.default_rng(0).integers(0, 256, 999, dtype=np.uint8)))
    flipped = bytearray(whole)
    flipped[500] ^= 255
    for content in (whole[:500], bytes(flipped), b"not gzip"):
        (tmp_path / "labels.gz").write_bytes(content)
        with pytest.raises(UserError, match=r"labels\.gz is damaged .*hff data get fashion_mnist"):
            read_idx_file(tmp_path / "labels.gz", 1, FASHION)


def test_a_compressed_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(LABELS + bytes(50_000_000)))
    with pytest.raises(UserError, match="should hold 3 bytes and holds 4"):
        read_idx_file(path, 1, MNIST)
    path.write_bytes(gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 2**32 - 1) + b"abc"))
    with pytest.raises(UserError, match="should hold 4294967295 bytes"):
        read_idx_file(path, 1, MNIST)


def pickled(tmp_path: Path, content: Any, protocol: int = 2) -> Path:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("keys", ["text", "bytes"])
def test_cifar_pickle(tmp_path: Path, protocol: int, keys: str) -> None:
    x, y = cifar_rows(5, 10, 0)
    batch: dict[Any, Any] = {"data": x, "labels": y}
    if keys == "bytes":
        batch = {key.encode(): value for key, value in batch.items()}
    images, labels = read_cifar_pickle(pickled(tmp_path, batch, protocol), "labels", CIFAR10)
    np.testing.assert_array_equal(images.reshape(5, -1), x)
    assert labels.tolist() == y


def test_pickle_written_by_python_2(tmp_path: Path) -> None:
    """The official files use module names of an old NumPy and store the array as a Python 2 string."""
    raw = bytes(range(256)) * 12
    content = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<I", len(raw)) + raw + b"tbU\x06labels](K\x07eu."
    )
    (tmp_path / "batch").write_bytes(content)
    images, labels = read_cifar_pickle(tmp_path / "batch", "labels", CIFAR10)
    assert images.tobytes() == raw
    assert labels.tolist() == [7]


class Command:
    """An object whose pickle is a function call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_command_in_a_pickle_is_not_run(tmp_path: Path, protocol: int) -> None:
    witness = tmp_path / "it ran"
    batch = {"data": Command(os.mkdir, str(witness)), "labels": [0]}
    with pytest.raises(UserError, match=r"tries to run (posix|nt)\.mkdir"):
        read_cifar_pickle(pickled(tmp_path, batch, protocol), "labels", CIFAR10)
    assert not witness.exists()


@pytest.mark.parametrize(
    "command",
    [
        Command(eval, "1"),
        Command(getattr, "x", "join"),
        Command(np.load, "x"),
        Command(np.dtype, "O"),
        Command(codecs.encode, "x", "rot13"),
    ],
)
def test_other_calls_in_a_pickle_are_refused(tmp_path: Path, command: Command) -> None:
    with pytest.raises(UserError, match="which a data set does not need"):
        read_pickle(pickled(tmp_path, {"data": command}), CIFAR10)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ([1, 2], "does not hold a dictionary"),
        ({"labels": [1]}, "does not hold images"),
        ({"data": np.zeros((2, 3071), np.uint8), "labels": [1, 2]}, "does not hold images"),
        ({"data": np.zeros((2, 3072), np.int64), "labels": [1, 2]}, "does not hold images"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "for each of 2 images"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "for each of 2 images"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": ["cat", "dog"]}, "not integers"),
    ],
)
def test_wrong_cifar_pickle(tmp_path: Path, batch: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        read_cifar_pickle(pickled(tmp_path, batch), "labels", CIFAR10)
    assert "hff data get cifar10" in str(error.value)


def nested(depth: int, kind: type) -> Any:
    """A value of a few bytes that stands for 10 ** depth values, because its parts are shared."""
    value: Any = 1
    for _ in range(depth):
        value = kind([value] * 10)
    return value


DEEP = b"K\x01" + b"\x85" * 100_000
EVIL: list[tuple[bytes, str]] = [
    (b"\x80\x02}r\xff\xff\xff\x7f.", "index that is too large"),
    (b"}p999999999999\n.", "index that is too large"),
    (b"\x80\x02}X\xff\xff\xff\xffabc.", "cannot be unpickled"),
    (b"\x80\x04}\x8e" + struct.pack("<Q", 2**40) + b"abc.", "cannot be unpickled"),
    (b"\x80\x02}" + DEEP + b"K\x01s.", "key of a dictionary is not a plain value"),
    (b"\x80\x02}" + DEEP + b"NbK\x01s.", "key of a dictionary is not a plain value"),
    (b"\x80\x02}X\x01\x00\x00\x00a" + DEEP + b"s.", "does not hold the names"),
    (
        b"\x80\x02}" + pickle.dumps(nested(30, tuple), 2)[2:-1] + b"K\x01s.",
        "key of a dictionary is not a plain value",
    ),
    (pickle.dumps({"label_names": nested(30, list)}, 2), "does not hold the names"),
    (pickle.dumps({"label_names": {1, 2}}, 4), "it holds a set"),
    (pickle.dumps({"a": 2**70}, 2), "more than 64 bits"),
    (b"}" + b"N0" * 2000 + b".", "more than 3000 instructions"),
]


@pytest.mark.parametrize(("content", "words"), EVIL, ids=[words for _, words in EVIL])
def test_pickles_that_would_hang_or_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    if "instructions" in words:
        monkeypatch.setattr("hff.data.readers.plain_pickle.MAX_INSTRUCTIONS", 3000)
    write_cifar10(tmp_path)
    (tmp_path / "batches.meta").write_bytes(content)
    request = ReadRequest("cifar10", datasets["cifar10"], tmp_path)
    with pytest.raises(UserError, match=rf"batches\.meta is damaged .*{words}"):
        CifarReader()(request)


def test_lists_of_shared_lists_are_not_labels(tmp_path: Path) -> None:
    batch = {"data": np.zeros((10, 3072), np.uint8), "labels": nested(30, list)}
    with pytest.raises(UserError, match="its labels are not one for each of 10 images"):
        read_cifar_pickle(pickled(tmp_path, batch), "labels", CIFAR10)


def test_a_pickle_that_encodes_one_text_many_times(tmp_path: Path) -> None:
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x00"
    call = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R0"
    (tmp_path / "batch").write_bytes(b"\x80\x02" + text + b"0" + call * 1000 + b"}.")
    with pytest.raises(UserError, match="uses the same text too often"):
        read_pickle(tmp_path / "batch", CIFAR10)


@pytest.mark.parametrize("shape", [(2**31, 3072), (-1, 3072), [10, 3072], (10.0, 3072)])
def test_false_shapes_in_a_pickle(tmp_path: Path, shape: Any) -> None:
    state = (1, shape, np.dtype("u1"), False, bytes(30720))
    array = Command(np.zeros(0).__reduce__()[0], np.ndarray, (0,), b"b")
    array.call = (*array.call, state)
    with pytest.raises(UserError, match="is damaged"):
        read_cifar_pickle(pickled(tmp_path, {"data": array, "labels": [0] * 10}), "labels", CIFAR10)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_flipped_bytes_in_a_pickle_never_hang(tmp_path: Path) -> None:
    x, y = cifar_rows(3, 10, 0)
    whole = pickle.dumps({"data": x, "labels": y, "filenames": ["a", "b", "c"]}, 2)
    places = [*range(200), *range(len(whole) - 100, len(whole))]
    rng = np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        content[rng.choice(places)] = int(rng.integers(256))
        (tmp_path / "batch").write_bytes(content)
        with suppress(UserError):
            read_cifar_pickle(tmp_path / "batch", "labels", CIFAR10)


@pytest.mark.parametrize("length", [0, 1, 20, 500])
def test_truncated_pickle(tmp_path: Path, length: int) -> None:
    x, y = cifar_rows(2, 10, 0)
    path = pickled(tmp_path, {"data": x, "labels": y})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UserError, match="cannot be unpickled"):
        read_cifar_pickle(path, "labels", CIFAR10)


def test_cifar_binary(tmp_path: Path) -> None:
    x, y = cifar_rows(4, 100, 0)
    fine = np.concatenate([np.full((4, 1), 9), np.array(y)[:, None], x], axis=1).astype(np.uint8)
    (tmp_path / "train.bin").write_bytes(fine.tobytes())
    images, labels = read_cifar_binary(tmp_path / "train.bin", 2, CIFAR100)
    np.testing.assert_array_equal(images.reshape(4, -1), x)
    assert labels.tolist() == y
    for content in (fine.tobytes()[:-1], b""):
        (tmp_path / "train.bin").write_bytes(content)
        with pytest.raises(UserError, match="not a multiple"):
            read_cifar_binary(tmp_path / "train.bin", 2, CIFAR100)
