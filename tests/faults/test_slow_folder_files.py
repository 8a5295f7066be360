"""Damage to the files of a group of seeds, of a comparison, and to recipes."""

import shutil
from pathlib import Path

import pytest
from damage import damaged
from mutations import TEXT, yaml_payload
from worker import assert_harmless

from hff import recipes
from hff.comparison import Comparison
from hff.comparison.results import as_csv
from hff.comparison.saved import SETTINGS
from hff.experiment import Experiment
from hff.run_group import RunGroup

pytestmark = pytest.mark.slow


def seeds(folder: Path) -> None:
    group = RunGroup.open(folder)
    for run in group.runs().values():
        run.summary()


def experiment(folder: Path) -> None:
    RunGroup.open(folder).experiment.with_seed(3)


def train_group(folder: Path) -> None:
    group = RunGroup.open(folder)
    # A damaged file may name seeds that are not trained yet; they would be trained for as long as it says.
    if group.runs().keys() == {0, 1}:
        group.train(device="cpu")


@pytest.mark.mutations(120)
@pytest.mark.parametrize("file", ["seeds.json", "seed-1/summary.json"])
def test_damage_to_a_group_of_seeds_does_no_harm(file: str, count: int, folder: Path) -> None:
    reads = [seeds, experiment, train_group]
    assert_harmless(damaged(folder / "group", file, reads, count, TEXT))


@pytest.fixture
def comparison(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a comparison."""
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 10**6)
    return folder / "comparison"


@pytest.mark.mutations(150)
def test_damage_to_the_settings_of_a_comparison_does_no_harm(count: int, comparison: Path) -> None:
    def open_it(folder: Path) -> None:
        Comparison.open(folder, device="cpu").results()

    assert_harmless(damaged(comparison, SETTINGS, [open_it], count, TEXT))


@pytest.mark.mutations(100)
@pytest.mark.parametrize("file", ["cost.json", "summary.json", "eval-test.json", "checkpoint.safetensors"])
def test_damage_to_the_results_of_a_comparison_does_no_harm(file: str, comparison: Path, count: int) -> None:
    opened = Comparison.open(comparison, device="cpu")

    def show_results(folder: Path) -> None:
        as_csv(opened.results())

    def estimate(folder: Path) -> None:
        vars(opened).pop("costs", None)
        # Costs that a damaged file lacks would be measured, which takes seconds.
        known = [opened.run_of(name).cost() for name in opened.entrants]
        if all({"peak_memory", "step_seconds", "prediction_seconds"} <= cost.keys() for cost in known):
            opened.estimate()

    def run_again(folder: Path) -> None:
        assert opened.run()

    reads = [show_results, show_results, show_results, estimate, run_again]
    assert_harmless(damaged(comparison, f"backprop/{file}", reads, count, TEXT))


def read_recipe(folder: Path) -> None:
    Experiment.from_mapping(recipes.read(str(folder / "mine.yaml")))


@pytest.mark.mutations(120)
@pytest.mark.parametrize("name", ["digits", "cifar10_cwconv", "paper_cifar10_vgg11", "mnist_ffcm"])
def test_a_damaged_recipe_does_no_harm(name: str, tmp_path: Path, marker: Path, count: int) -> None:
    (tmp_path / "recipe").mkdir()
    shutil.copy(Path(recipes.__file__).with_name(f"{name}.yaml"), tmp_path / "recipe" / "mine.yaml")
    kinds = (*TEXT, yaml_payload(marker))
    assert_harmless(damaged(tmp_path / "recipe", "mine.yaml", [read_recipe], count, kinds), marker)
