from pathlib import Path
from typing import Any

import pytest

from hff.config import fields_of
from hff.data import datasets
from hff.errors import UserError
from hff.experiment import Experiment, method_fields
from hff.methods import methods
from hff.recipes import read, recipes
from hff.training import Settings

NAMES = sorted(recipes())
PAPER = [name for name in NAMES if name.startswith("paper_")]
TWINS = [name for name in NAMES if name.endswith("_backprop")]

PAPERS_TABLES: dict[str, tuple[dict[str, Any], tuple[int, ...] | None, int, float, bool]] = {
    # name: (network options, auxiliary channels, epochs, learning rate, scaled)
    "paper_mnist_mlp": ({"widths": (2000, 2000, 2000)}, None, 150, 1e-3, True),
    "paper_fashion_mnist_mlp": ({"widths": (2000, 2000, 2000)}, None, 150, 1e-3, True),
    "paper_cifar10_mlp": ({"widths": (2000, 2000, 2000)}, None, 300, 1e-3, True),
    "paper_mnist_cnn": ({"channels": (32, 64)}, (64, 32), 150, 1e-4, True),
    "paper_cifar10_cnn": ({"channels": (32, 64, 128)}, (128, 64, 32), 300, 1e-4, True),
    "paper_cifar100_cnn": ({"channels": (32, 64, 128)}, (256, 128, 64), 300, 1e-4, True),
    "paper_cifar10_vgg11": ({}, (512, 512, 512, 512, 256, 256, 128, 64), 240, 1e-4, False),
    "paper_cifar100_vgg11": ({}, (512, 512, 512, 512, 256, 256, 128, 64), 240, 1e-4, False),
    "paper_imagenet_alexnet": ({}, (256, 128, 64, 32, 32), 90, 1e-4, False),
    "paper_imagenet_vgg16": (
        {},
        (512, 512, 512, 512, 512, 512, 256, 256, 256, 128, 128, 64, 64),
        90,
        1e-4,
        False,
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_parses_describes_itself_and_bears_its_name(name: str) -> None:
    experiment = Experiment.from_mapping(read(name))
    assert experiment.name == name
    assert experiment.data.name in name
    assert len(recipes()[name]) > 20


@pytest.mark.parametrize("name", [name for name in NAMES if "imagenet" not in name])
def test_every_recipe_builds_on_the_shape_of_its_data(name: str) -> None:
    experiment = Experiment.from_mapping(read(name))
    about = datasets[experiment.data.name]
    assert about.in_shape is not None
    assert about.classes is not None
    experiment.create_method(about.in_shape, about.classes)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_leave_nothing_to_defaults(name: str) -> None:
    recipe = read(name)
    assert set(recipe["method"]) == {"name", *(field.name for field in method_fields("hff"))}
    spoken = {field.name for field in fields_of(Settings)} - {
        "momentum",
        "epsilon",
        "checkpoint_seconds",
        "keep_gigabytes",
    }
    assert spoken <= set(recipe)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_hold_its_tables(name: str) -> None:
    network, auxiliary, epochs, rate, scaled = PAPERS_TABLES[name]
    experiment = Experiment.from_mapping(read(name))
    method, training = experiment.method.options, experiment.training
    assert network.items() <= experiment.network.options.items()
    assert method["aux_channels"] == auxiliary
    assert (training.epochs, training.learning_rate) == (epochs, rate)
    assert (training.optimizer, training.lr_schedule) == ("adam", "constant")
    assert (method["scale_input"], method["scale_similarity"]) == (scaled, scaled)
    assert (method["loss"], method["temperature"], method["prototypes_per_class"]) == ("smooth_margin", 10, 1)
    assert (method["prototype_update"], method["prototype_decay"]) == ("shadow", 0.99)
    assert (method["grid"], method["loss_tap"]) == (1, "map")


@pytest.mark.parametrize("name", TWINS)
def test_twins_differ_in_nothing_but_the_method_and_its_rate(name: str) -> None:
    twin = read(name)
    original = read(name.removesuffix("_backprop"))
    assert twin.pop("method") == {"name": "backprop"}
    assert original.pop("method")["name"] == "hff"
    # Each method has the learning rate that suits it: an equal one would be unfair to the other.
    for free in ("name", "learning_rate"):
        del twin[free], original[free]
    assert twin == original


@pytest.mark.parametrize("method", sorted(set(methods) - {"hff", "backprop"}))
def test_every_rival_has_recipes(method: str) -> None:
    data = ["mnist", "fashion_mnist"]
    if "conv" in methods[method].info.supports:
        data.append("cifar10")
    for name in data:
        experiment = Experiment.from_mapping(read(f"{name}_{method}"))
        assert (experiment.data.name, experiment.method.name) == (name, method)
        # The test split is for `hff eval`; whatever is chosen, is chosen on the validation split.
        assert experiment.data.options["validation"] >= 5000


def test_a_file_of_ones_own_is_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("method: backprop\nepochs: 2\n")
    assert read(str(path)) == {"name": "mine", "method": "backprop", "epochs": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [1", "no valid YAML"), ("- 1", "must hold settings"), ("just words", "must hold settings")],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as unsupported_reason:
        read(str(path))
    assert str(path) in str(unsupported_reason.value)


def test_an_empty_file_is_the_default_experiment(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("# nothing\n")
    assert read(str(path)) == {"name": "mine"}


def test_an_unknown_recipe_and_a_missing_file() -> None:
    with pytest.raises(UserError, match="did you mean 'mnist_mlp'"):
        read("mnist_mpl")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read("nowhere.yaml")
