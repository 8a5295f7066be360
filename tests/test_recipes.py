from pathlib import Path
from typing import Any

import pytest

from hff.data import datasets
from hff.errors import UserError
from hff.experiment import Experiment, method_fields
from hff.methods import methods
from hff.recipes import read, recipes

NAMES = sorted(recipes())
PAPER = [name for name in NAMES if name.startswith("paper_")]
TWINS = [name for name in NAMES if name.endswith("_backprop")]

TABLES_OF_THE_PAPER: dict[str, tuple[dict[str, Any], tuple[int, ...] | None, int, float, bool]] = {
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

STATED = {
    "epochs",
    "seconds",
    "batch_size",
    "optimizer",
    "learning_rate",
    "weight_decay",
    "lr_schedule",
    "clip",
}
"""The training settings that a recipe of the paper sets even if they are the defaults."""


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_parses_and_has_a_description(name: str) -> None:
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
def test_recipes_of_the_paper_set_every_option(name: str) -> None:
    recipe = read(name)
    assert set(recipe["method"]) == {"name", *(field.name for field in method_fields("hff"))}
    assert set(recipe) >= STATED


@pytest.mark.parametrize("name", PAPER)
def test_recipes_of_the_paper_match_its_tables(name: str) -> None:
    network, auxiliary, epochs, rate, scaled = TABLES_OF_THE_PAPER[name]
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
def test_backprop_twins_differ_only_in_method_and_learning_rate(name: str) -> None:
    twin = read(name)
    original = read(name.removesuffix("_backprop"))
    assert twin.pop("method") == {"name": "backprop"}
    assert original.pop("method")["name"] == "hff"
    # Each method has its own learning rate: an equal one would be unfair to one of them.
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
        # Options are chosen on the validation split, so there must be one.
        assert experiment.data.options["validation"] >= 5000


def test_a_yaml_file_is_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("method: backprop\nepochs: 2\n")
    assert read(str(path)) == {"name": "mine", "method": "backprop", "epochs": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not valid YAML"),
        ("- 1", "must contain settings"),
        ("just words", "must contain settings"),
        ("a: &a [1]\nb: *a", "anchors and aliases are not supported"),
        ("epochs: 1\0", "NUL characters"),
        ('name: "a\\0"', "is not text"),
        ('name: "\\ud800"', "is not text"),
        (f"epochs: {10**30}", "more than 63 bits"),
        ("epochs: " + "[" * 5000, "nested too deeply"),
        ("name: 2024-13-13", "not valid YAML"),
        ("name: " + "x" * 300_000, "at most 262,144"),
    ],
)
def test_an_invalid_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read(str(path))
    assert str(path) in str(error.value)


def test_an_empty_file_is_the_default_experiment(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("# nothing\n")
    assert read(str(path)) == {"name": "mine"}


def test_an_unknown_recipe_and_a_missing_file_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'mnist_mlp'"):
        read("mnist_mpl")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read("nowhere.yaml")
