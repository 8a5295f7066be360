"""Data sets of other packages, which arrive as entry points."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from tiny_files import write_mnist

from hff.cli import main
from hff.data import DataSetInfo, RawData, ReadRequest, Source, TensorExamples, datasets, load_data, status
from hff.data.readers.idx import IDX_FILES, read_idx
from hff.errors import UserError


def read_stripes(request: ReadRequest) -> RawData:
    """Images [40, 1, 8, 8] whose class is the direction of a stripe."""
    x = torch.zeros(40, 1, 8, 8, dtype=torch.uint8)
    x[::2, :, 3], x[1::2, :, :, 3] = 255, 255
    examples = TensorExamples(x, torch.arange(40) % 2)
    return RawData(examples, examples, request.class_names, (1, 8, 8))


STRIPES = DataSetInfo(
    "Stripes", read=read_stripes, license="MIT", classes=2, in_shape=(1, 8, 8), origin="a formula"
)


def letters() -> DataSetInfo:
    source = Source(folders=("letters",), layouts=(IDX_FILES,))
    return DataSetInfo("Letters", read=read_idx, license="MIT", classes=10, source=source)


def wrong() -> int:
    return 3


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"stripes": "STRIPES", "letters": "letters", "wrong": "wrong"}
    points = {name: EntryPoint(name, f"{__name__}:{value}", "hff.datasets") for name, value in values.items()}
    monkeypatch.setattr(datasets, "_entry_points", points, raising=False)
    monkeypatch.setattr(datasets, "_loaded", set())


def test_a_row_is_loaded_by_name() -> None:
    data = load_data("stripes", size=4, limit=10)
    assert data.classes == ("0", "1")
    assert data.in_shape == (1, 4, 4)
    assert (len(data.train), len(data.validation or ())) == (10, 1)
    assert status("stripes") == {"path": None, "source": "a formula"}
    with pytest.raises(UserError, match="stripes does not take a path"):
        load_data("stripes", path=Path("x"))


def test_a_function_may_return_the_row(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="put its files into letters"):
        load_data("letters")
    write_mnist(tmp_path / "letters")
    data = load_data("letters", data_dir=tmp_path)
    assert data.classes == tuple("0123456789")
    assert data.in_shape == (1, 28, 28)


def test_another_object_is_refused() -> None:
    with pytest.raises(UserError, match=r"'wrong' .* expected a DataSetInfo or a function that returns one"):
        load_data("wrong")


def test_the_command_line_lists_the_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("hff: The data set 'wrong' of")
    entries = {entry["name"]: entry for entry in json.loads(printed.out)}
    assert entries["stripes"]["source"] == "a formula"
    assert entries["letters"]["source"] == "not found"
    assert "wrong" not in entries
    assert main(["list", "datasets", "--json"]) == 0
    assert {"stripes", "letters"} < {entry["name"] for entry in json.loads(capsys.readouterr().out)}


def test_a_network_is_trained_on_the_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--data", "stripes", "--network.widths", "8", "--epochs", "1", "--json"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == str(tmp_path / "run")
