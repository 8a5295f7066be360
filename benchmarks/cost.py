"""Measures time and memory of methods side by side: python benchmarks/cost.py mnist_mlp mnist_mlp_backprop

`results/cost.csv` gets one row per recipe: the median seconds of a training epoch and of 10,000 predictions,
the peak memory of training, the spread of the seconds per epoch over the rounds (interquartile range
relative to the median), and the command, versions and hardware. Rows of the same experiment and seed are
replaced. Inputs are random, in the shape of the recipe's data, so data files are not needed. An epoch is one
of `epochs` over `training_images`. Where layers are trained one after the other, it is the mean over the
layers.

The recipes take turns in each round, so that other work on the machine affects all of them. Even so, compare
only rows of the same command. The number of threads is PyTorch's: set OMP_NUM_THREADS to change it.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from collect import RESULTS, merge

from hff.batch import Batch
from hff.bench.cost import (
    Task,
    epoch_seconds,
    interleaved,
    predictions,
    random_batch,
    trained_stages,
    training_steps,
)
from hff.bench.memory import peak_memory
from hff.data import datasets
from hff.errors import UserError, unknown
from hff.experiment import PARTS, Experiment, overridden
from hff.networks import create_network
from hff.recipes import read
from hff.training.run import environment

PREDICTION_BATCH = 250
PREDICTIONS = 500
"""Number of predictions that are timed; the table gives the time for 10,000."""
PREDICTION = "prediction"
MEGABYTE = 1e6

Seconds = Mapping[int | str, list[float]]
"""Seconds of each round, for each stage (by number) and for the prediction."""


@dataclass
class Entrant:
    """An experiment to measure."""

    experiment: Experiment
    in_shape: tuple[int, ...]
    classes: int

    def __post_init__(self) -> None:
        self.build = partial(self.experiment.create_method, self.in_shape, self.classes)
        self.method = self.build()
        self.stages = trained_stages(self.method, self.experiment.training)

    def tasks(self, steps: int) -> dict[int | str, Task]:
        """The training steps of each stage (by number), and the predictions."""
        settings = self.experiment.training
        tasks: dict[int | str, Task] = {}
        for number, stage in enumerate(self.stages):
            size = stage.batch_size or settings.batch_size
            batches = self._batches(size, steps, self.method.views)
            tasks[number] = training_steps(self.method, stage, settings, batches)
        images = self._batches(PREDICTION_BATCH, PREDICTIONS // PREDICTION_BATCH)
        tasks[PREDICTION] = predictions(self.method, [batch.x for batch in images])
        return tasks

    def row(self, seconds: Seconds, steps: int, images: int) -> dict[str, Any]:
        """The row of the table."""
        experiment, settings = self.experiment, self.experiment.training
        by_round = zip(*(seconds[number] for number in range(len(self.stages))), strict=True)
        epochs = [
            epoch_seconds(self.stages, [stage / steps for stage in stages], settings, images)
            for stages in by_round
        ]
        predicted = statistics.median(seconds[PREDICTION]) * 10_000 / PREDICTIONS
        chosen = experiment.network
        table = create_network(chosen.name, self.in_shape, self.classes, **chosen.options)
        widths = "-".join(str(row.width) for row in table.rows)
        machine = environment()
        return {
            "experiment": experiment.name,
            "seed": experiment.seed,
            "method": experiment.method.name,
            "network": f"{experiment.network.name} {widths}",
            "parameters": sum(parameter.numel() for parameter in self.method.parameters()),
            "batch_size": settings.batch_size,
            "epochs": sum(stage.epochs for stage in self.stages),
            "training_images": images,
            "seconds_per_epoch": f"{statistics.median(epochs):.3g}",
            "seconds_per_10000_predictions": f"{predicted:.3g}",
            "passes": self.method.passes,
            "peak_memory_mb": f"{peak_memory(self.build, settings, self.in_shape) / MEGABYTE:.1f}",
            "rounds": len(epochs),
            "spread": f"{spread(epochs):.3f}",
            "threads": machine["threads"],
            "processor": machine["processor"],
            "hff": machine["hff"],
            "torch": machine["torch"],
            "date": machine["started"][:10],
            "command": machine["command"],
        }

    def _batches(self, size: int, count: int, views: int = 1) -> list[Batch]:
        return [
            random_batch(self.in_shape, self.classes, size, step=step, views=views) for step in range(count)
        ]


def subject(experiment: Experiment) -> Entrant:
    name = experiment.data.name
    in_shape, classes = datasets[name].in_shape, datasets[name].classes
    if in_shape is None or classes is None:
        raise UserError(
            f"The shape of {name!r} is only known from its files: use a data set that `hff list` shows."
        )
    size = experiment.data.options["size"]
    return Entrant(experiment, in_shape if size is None else (in_shape[0], size, size), classes)


def spread(values: Sequence[float]) -> float:
    """Interquartile range relative to the median."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def experiments(recipes: Sequence[str], overrides: Mapping[str, str]) -> list[Experiment]:
    """The recipes with the overrides; an option applies to all recipes that have it, but at least to one."""
    written = [read(recipe) for recipe in recipes]
    plain = [Experiment.from_mapping(settings) for settings in written]
    valid = [options(experiment) for experiment in plain]
    for key in overrides:
        if "." in key and not any(key in known for known in valid):
            raise unknown("setting", key, set().union(*valid))
    return [
        Experiment.from_mapping(overridden(settings, changes(overrides, known)))
        for settings, known in zip(written, valid, strict=True)
    ]


def options(experiment: Experiment) -> set[str]:
    """Dotted names of the options of an experiment's method, network and data set."""
    return {f"{part}.{option}" for part in PARTS for option in getattr(experiment, part).options}


def changes(overrides: Mapping[str, str], known: set[str]) -> dict[str, Any]:
    """The overrides that apply to an experiment, nested as in a recipe."""
    taken: dict[str, Any] = {}
    for key, value in overrides.items():
        part, dot, option = key.partition(".")
        if not dot:
            taken[key] = value
        elif key in known:
            taken.setdefault(part, {})[option] = value
    return taken


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument(
        "recipes", nargs="+", metavar="RECIPE", help="from `hff list recipes`, or a YAML file"
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="for all recipes with this setting, such as network.widths=1000,1000,1000; may be repeated",
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of measured rounds, at least 2 (5)")
    parser.add_argument("--steps", type=int, default=3, help="training steps per stage and round (3)")
    parser.add_argument("--images", type=int, default=55_000, help="training images per epoch (55000)")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "cost.csv", help="table to write (results/cost.csv)"
    )
    given = parser.parse_args(argv)
    if given.rounds < 2 or given.steps < 1 or given.images < 1:
        parser.error("at least 2 rounds, 1 step and 1 image are needed")
    if not all("=" in override for override in given.override):
        parser.error("an override is SETTING=VALUE, such as network.widths=1000,1000,1000")
    return given


def main(argv: Sequence[str]) -> None:
    given = arguments(argv)
    overrides = dict(override.split("=", 1) for override in given.override)
    subjects = [subject(experiment) for experiment in experiments(given.recipes, overrides)]
    tasks = {
        (number, name): task
        for number, each in enumerate(subjects)
        for name, task in each.tasks(given.steps).items()
    }
    seconds = interleaved(tasks, given.rounds)
    rows = []
    for number, each in enumerate(subjects):
        own = {name: times for (whose, name), times in seconds.items() if whose == number}
        rows.append(each.row(own, given.steps, given.images))
    merge(given.out, rows)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(str(error))
