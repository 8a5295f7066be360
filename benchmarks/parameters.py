"""Counts the parameters of recorded trainings: python benchmarks/parameters.py

Fills in the numbers of parameters of accuracy.csv and cifar10_gap.csv, which follow from the command of each
row and need no training: all parameters in training, and those that a prediction uses.
"""

import csv
import shlex
import sys
from typing import Any

from hff.cli.flags import scan_arguments, settings_in
from hff.cli.train import flags_of
from hff.data import datasets
from hff.experiment import PARTS, Experiment, overridden
from hff.recipes import read

TABLES = ("accuracy.csv", "cifar10_gap.csv")


def experiment_of(command: str) -> Experiment:
    """The experiment that an `hff train RECIPE ...` command trains."""
    arguments = shlex.split(command)[2:]
    scanned = scan_arguments(arguments)
    recipe = read(scanned["recipe"])
    named = {part: {"name": scanned[f"--{part}"]} for part in PARTS if f"--{part}" in scanned}
    given = flags_of(Experiment.from_mapping(overridden(recipe, named))).read(arguments)
    assert given is not None
    return Experiment.from_mapping(overridden(recipe, settings_in(given)))


def counts(experiment: Experiment) -> dict[str, int]:
    """The number of all parameters, and of those that a prediction uses."""
    about = datasets[experiment.data.name]
    assert about.in_shape is not None
    assert about.classes is not None
    method = experiment.create_method(about.in_shape, about.classes)
    return {
        "parameters": sum(parameter.numel() for parameter in method.parameters()),
        "prediction_parameters": method.prediction_parameters,
    }


def with_counts(row: dict[str, Any]) -> dict[str, Any]:
    """The row with both numbers side by side."""
    found = counts(experiment_of(row["command"]))
    if int(row["parameters"]) != found["parameters"]:
        sys.exit(
            f"{row['experiment']}: {found['parameters']} parameters, but {row['parameters']} were trained."
        )
    filled: dict[str, Any] = {}
    for key, value in row.items():
        if key != "prediction_parameters":
            filled[key] = value
        if key == "parameters":
            filled["prediction_parameters"] = found["prediction_parameters"]
    return filled


def main() -> None:
    from collect import RESULTS

    for name in TABLES:
        with (RESULTS / name).open(newline="") as file:
            rows = [with_counts(row) for row in csv.DictReader(file)]
        with (RESULTS / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
