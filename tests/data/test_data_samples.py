"""The sample data that the docs use."""

from pathlib import Path

import pytest

from hff.cli import main
from hff.data import load_data
from hff.data.samples import PHOTOS, PHOTOS_PER_CLASS, SAMPLES, write_samples
from hff.errors import UserError


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_small_and_always_the_same(name: str, tmp_path: Path) -> None:
    first, second = (write_samples(name, tmp_path / folder) for folder in "ab")
    assert first == tmp_path / "a" / name
    files = [file.relative_to(first) for file in first.rglob("*") if file.is_file()]
    assert all((first / file).read_bytes() == (second / file).read_bytes() for file in files)
    assert 500 < size(first) < 10**6
    with pytest.raises(UserError, match="already exists; remove it"):
        write_samples(name, tmp_path / "a")


def test_an_unknown_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Unknown sample 'photo'; did you mean 'photos'"):
        write_samples("photo", tmp_path)


def test_photographs_and_the_table_are_data_to_train_on(tmp_path: Path) -> None:
    photos = load_data("folder", path=write_samples("photos", tmp_path), size=16)
    assert photos.classes == tuple(sorted(PHOTOS))
    splits = (photos.train, photos.validation, photos.test)
    assert sum(len(split) for split in splits if split is not None) == len(PHOTOS) * PHOTOS_PER_CLASS
    wine = load_data("npz", path=write_samples("wine.npz", tmp_path))
    assert (wine.in_shape, len(wine.classes)) == ((13,), 3)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_command_says_what_the_samples_are_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "samples", name]) == 0
    first, command = capsys.readouterr().out.splitlines()
    assert first.startswith(f"The samples are in {name}. ")
    assert command.startswith("  hff ")
    assert command.endswith(f" {name}")
    assert main(["data", "samples", name]) == 2
    assert capsys.readouterr().err == f"hff: {name} already exists; remove it, or work in another folder.\n"
