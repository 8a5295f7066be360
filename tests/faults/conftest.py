"""The folders whose files are damaged. They are made once and copied for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hff.comparison import Comparison, ComparisonSettings
from hff.data import DataSet, load_data
from hff.experiment import Experiment, Selection, train
from hff.run_group import RunGroup
from hff.trained import evaluate_run
from hff.training import Listener, Run

DATA = {"name": "digits", "limit": 100}
TINY = Experiment.from_mapping(
    {"data": DATA, "network": {"name": "mlp", "widths": [12, 10]}, "epochs": 3, "batch_size": 128}
)


class StopAtTheSecondEpoch(Listener):
    def epoch_ended(self, record: dict[str, Any]) -> None:
        if record["epoch"] == 2:
            raise KeyboardInterrupt


@pytest.fixture(scope="session")
def few_digits() -> DataSet:
    return load_data("digits", limit=100)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, few_digits: DataSet) -> Path:
    """A folder with a stopped run, a finished and evaluated run, a group of two seeds, and a comparison."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.raises(KeyboardInterrupt):
        train(TINY, folder / "stopped", data=few_digits, listener=StopAtTheSecondEpoch())
    train(TINY, folder / "finished", data=few_digits)
    evaluate_run(Run(folder / "finished"), "test", data=few_digits)
    Run(folder / "finished").add_cost({"step_seconds": [0.1], "prediction_seconds": 0.1})
    Run(folder / "finished").save_failure("It failed.")
    RunGroup.create(folder / "group", TINY, (0, 1)).train(device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        # Measuring memory starts a process.
        patch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 10**6)
        settings = ComparisonSettings(
            Experiment.from_mapping({"data": DATA}).data,
            Selection("mlp", {"widths": (12, 10)}),
            epochs=1,
            batch_size=128,
        )
        Comparison(folder / "comparison", settings, ["backprop", "mono_forward"]).run()
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the folder of runs."""
    yield shutil.copytree(trained, tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """The file that payloads would write."""
    return tmp_path / "marker"


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    """The number of mutations of a test, from its marker."""
    marker = request.node.get_closest_marker("mutations")
    assert marker is not None, "mark the test with the number of its mutations"
    number: int = marker.args[0]
    return number
