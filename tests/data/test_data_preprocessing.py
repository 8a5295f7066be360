import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hff.data import Preprocessing
from hff.errors import UserError

COLOR = Preprocessing((0.5, 0.25, 0.0), (0.5, 0.25, 2.0), 255.0, (3, 4, 4))
GRAY = Preprocessing((0.0,), (1.0,), 255.0, (1, 4, 4))


def test_normalization_worked_by_hand() -> None:
    x = torch.full((1, 3, 4, 4), 255, dtype=torch.uint8)
    result = COLOR(x)
    assert result.dtype == torch.float32
    # (1 - 0.5) / 0.5 = 1, (1 - 0.25) / 0.25 = 3, (1 - 0) / 2 = 0.5
    torch.testing.assert_close(result[0, :, 0, 0], torch.tensor([1.0, 3.0, 0.5]))
    torch.testing.assert_close(COLOR(torch.zeros_like(x))[0, :, 0, 0], torch.tensor([-1.0, -1.0, 0.0]))


def test_the_input_is_not_changed() -> None:
    x = torch.ones(2, 3, 4, 4, dtype=torch.float64)
    COLOR(x)
    assert bool((x == 1).all())


def test_a_column_with_a_large_mean_keeps_its_precision() -> None:
    seconds = 1.7e9 + torch.arange(4, dtype=torch.float64)
    column = Preprocessing((float(seconds.mean()),), (float(seconds.std(correction=0)),), 1.0, (1,))
    result = column(seconds[:, None])[:, 0]
    torch.testing.assert_close(result, torch.tensor([-1.3416, -0.4472, 0.4472, 1.3416]), atol=1e-3, rtol=0)


def test_json_round_trip() -> None:
    plain = json.loads(json.dumps(COLOR.to_json()))
    assert Preprocessing.from_json(plain) == COLOR


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_nan_and_overflow_are_refused(value: float) -> None:
    x = torch.zeros(1, 3, 4, 4, dtype=torch.float64)
    x[0, 1, 2, 3] = value
    with pytest.raises(UserError, match="1 of 48 input values are NaN"):
        COLOR(x)


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(UserError, match=r"\[3, 4, 4\], not \[3, 5, 4\]"):
        COLOR(torch.zeros(1, 3, 5, 4))


def test_an_image_of_the_right_size_is_not_resampled(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    expected = COLOR(torch.from_numpy(pixels).permute(2, 0, 1)[None])[0]
    torch.testing.assert_close(COLOR.read_image(tmp_path / "a.png"), expected)


def test_a_wide_image_is_cropped_to_its_center(tmp_path: Path) -> None:
    pixels = np.zeros((40, 120), dtype=np.uint8)
    pixels[:, 30:90] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    result = GRAY.read_image(tmp_path / "wide.png")
    assert result.shape == (1, 4, 4)
    torch.testing.assert_close(result, torch.ones(1, 4, 4))


def test_the_margin_is_cropped(tmp_path: Path) -> None:
    pixels = np.zeros((80, 80), dtype=np.uint8)
    pixels[20:60, 20:60] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    whole = GRAY.read_image(tmp_path / "a.png")
    assert float(whole[0, 0, 0]) < 0.5
    middle = Preprocessing((0.0,), (1.0,), 255.0, (1, 4, 4), margin=2.0).read_image(tmp_path / "a.png")
    assert float(middle[0, 1:3, 1:3].min()) == 1
    assert float(middle.mean()) > float(whole.mean())


def test_color_and_gray_images_are_converted(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), (255, 255, 255)).save(tmp_path / "white.png")
    Image.new("L", (4, 4), 255).save(tmp_path / "gray.png")
    torch.testing.assert_close(GRAY.read_image(tmp_path / "white.png"), torch.ones(1, 4, 4))
    assert COLOR.read_image(str(tmp_path / "gray.png")).shape == (3, 4, 4)


def test_an_image_gets_the_scale_of_the_data_set(tmp_path: Path) -> None:
    digits = Preprocessing((0.5,), (0.25,), 16.0, (1, 8, 8))
    Image.new("L", (30, 30), 255).save(tmp_path / "white.png")
    torch.testing.assert_close(digits.read_image(tmp_path / "white.png"), torch.full((1, 8, 8), 2.0))


def test_images_of_16_bits_and_floats_are_not_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 257 * 128, dtype=np.uint16)).save(tmp_path / "wide.png")
    torch.testing.assert_close(GRAY.read_image(tmp_path / "wide.png"), torch.full((1, 4, 4), 128 / 255))
    Image.fromarray(np.full((4, 4), 0.6, dtype=np.float32)).save(tmp_path / "float.tiff")
    torch.testing.assert_close(GRAY.read_image(tmp_path / "float.tiff"), torch.full((1, 4, 4), 0.6))


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    pixels = np.zeros((4, 4), dtype=np.uint8)
    pixels[0] = 255
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    result = GRAY.read_image(tmp_path / "a.png")
    assert result[0].mean(0).tolist() == [0, 0, 0, 1]


def test_files_that_are_not_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "note.png").write_text("not an image")
    with pytest.raises(UserError, match=r"note\.png cannot be read as an image \(unknown format\)"):
        GRAY.read_image(tmp_path / "note.png")
    with pytest.raises(UserError, match="There is no file"):
        GRAY.read_image(tmp_path / "missing.png")
    Image.new("RGB", (200, 200), (9, 99, 199)).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:700])
    with pytest.raises(UserError, match=r"cut\.jpg cannot be read as an image \(.*truncated"):
        GRAY.read_image(tmp_path / "cut.jpg")


def test_an_image_with_nan_pixels_is_refused(tmp_path: Path) -> None:
    pixels = np.ones((4, 4), dtype=np.float32)
    pixels[1, 1] = np.nan
    Image.fromarray(pixels).save(tmp_path / "a.tiff")
    with pytest.raises(UserError, match="1 pixels that are NaN"):
        GRAY.read_image(tmp_path / "a.tiff")


def test_a_network_for_tables_refuses_images(tmp_path: Path) -> None:
    table = Preprocessing((0.0,), (1.0,), 1.0, (5,))
    with pytest.raises(UserError, match=r"a.png is an image, but this network takes rows of 5 numbers"):
        table.read_image(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a.csv is not an .npz file, but .* save them with numpy.savez"):
        table.read_image(tmp_path / "a.csv")


@pytest.mark.parametrize("count", [0, 2, 4])
def test_mean_and_std_have_one_value_or_one_for_each_channel(count: int) -> None:
    with pytest.raises(UserError, match=f"one for each of the 3 channels or columns, not {count}"):
        Preprocessing((0.5,) * count, (0.5,) * 3, 255.0, (3, 4, 4))
    with pytest.raises(UserError, match="The std of the inputs"):
        Preprocessing((0.5,), (0.5,) * count, 255.0, (3, 4, 4))
