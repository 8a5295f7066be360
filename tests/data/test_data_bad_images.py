"""Image files that cannot be read, or that would need gigabytes."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_files import write_images

from hff.data import DataWarning, Preprocessing, load_data
from hff.data.readers import folder
from hff.errors import UserError

GRAY = Preprocessing((0.0,), (1.0,), 255.0, (1, 4, 4))


def png(width: int, height: int, bits: int = 8) -> bytes:
    """A gray PNG file that claims this size and does not hold that many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">2I5B", width, height, bits, 0, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


SIZES = [(1, 100_000_000, 8), (13_000, 13_000, 16), (8001, 8000, 8), (2**31 - 1, 2**31 - 1, 8)]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("width", "height", "bits"), SIZES)
def test_images_with_too_many_pixels_are_refused_before_decoding(
    tmp_path: Path, width: int, height: int, bits: int
) -> None:
    write_images(tmp_path, mode="L")
    (tmp_path / "a" / "large.png").write_bytes(png(width, height, bits))
    for read in (
        lambda: load_data("folder", path=tmp_path),
        lambda: GRAY.read_image(tmp_path / "a" / "large.png"),
    ):
        with pytest.raises(UserError, match=r"large\.png cannot be read as an image .*more than 64 million"):
            read()


def test_a_large_jpeg_is_decoded_at_a_lower_resolution(tmp_path: Path) -> None:
    Image.new("L", (8200, 8200), 255).save(tmp_path / "large.jpg")
    assert GRAY.read_image(tmp_path / "large.jpg").mean() > 0.98


def damage(root: Path, count: int) -> None:
    """Cuts off files so that the header of every other one is readable."""
    for i in range(count):
        file = root / "a" / f"{i}.png"
        file.write_bytes(file.read_bytes()[: 2000 if i % 2 else 4])


def test_all_bad_images_are_listed_at_once(tmp_path: Path) -> None:
    write_images(tmp_path, count=20, size=(60, 60))
    damage(tmp_path, 3)
    with pytest.raises(UserError) as error:
        load_data("folder", path=tmp_path)
    message = str(error.value)
    assert message.startswith("3 images cannot be read: ")
    assert message.endswith("replace or remove them, or skip them with --data.bad-images skip.")
    assert all(str(tmp_path / "a" / f"{i}.png") in message for i in range(3))
    damage(tmp_path, 13)
    with pytest.raises(UserError, match=r"^13 images cannot .* and 3 more; replace") as error:
        load_data("folder", path=tmp_path)
    assert str(error.value).count(".png") == 10


@pytest.mark.parametrize("in_memory", [True, False])
def test_bad_images_are_skipped_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    write_images(tmp_path, count=20, size=(60, 60))
    damage(tmp_path, 4)
    if not in_memory:
        monkeypatch.setattr(folder, "IN_MEMORY", 0)
    with pytest.warns(DataWarning, match=r"4 images cannot be read: .*0\.png .*; skipped\."):
        data = load_data("folder", path=tmp_path, bad_images="skip", validation=0)
    assert data.test is not None
    labels = np.concatenate([data.train.labels.numpy(), data.test.labels.numpy()])
    assert np.bincount(labels).tolist() == [16, 20]
    assert sum(len(stored) for stored in data.train.in_order(7)) == len(data.train)


def test_imagenet_skips_bad_images(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_images(tmp_path / split, count=4, size=(60, 60))
        damage(tmp_path / split, 1)
    with pytest.warns(DataWarning, match="2 images cannot be read"):
        data = load_data("imagenet", path=tmp_path, size=8, validation=0, bad_images="skip")
    assert (len(data.train), len(data.test or ())) == (7, 7)


def test_a_class_without_readable_images_is_refused(tmp_path: Path) -> None:
    write_images(tmp_path, count=3, size=(60, 60))
    damage(tmp_path, 3)
    with pytest.raises(UserError, match="No training image of 'a' can be read"):
        load_data("folder", path=tmp_path, bad_images="skip")


def test_wrong_option(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="bad_images must be 'refuse' or 'skip', not 'ignore'"):
        load_data("folder", path=tmp_path, bad_images="ignore")  # type: ignore[arg-type]
