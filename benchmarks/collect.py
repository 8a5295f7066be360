"""Adds evaluated runs to the tables in results/: python benchmarks/collect.py runs/*

`accuracy.csv` has one row per seed: the experiment and its settings, the accuracy of every layer on the test
split at the last epoch, and the command, versions and hardware. `curves.csv` has the loss and validation
accuracy of every layer and epoch. Rows of the same experiment and seed are replaced.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parameters import counts

from hff.experiment import Experiment
from hff.training import Run

RESULTS = Path(__file__).parents[1] / "results"
EVALUATION = "eval-test.json"
READ_OUT = "read_out"
"""Name of the final prediction in columns where layers are named by number."""


def run_folders(paths: list[Path]) -> list[Path]:
    """The evaluated runs among the paths; folders with several seeds are expanded."""
    folders = [inner for path in paths for inner in sorted(path.glob("seed-*")) or [path]]
    return [folder for folder in folders if (folder / EVALUATION).exists()]


def accuracy(folder: Path) -> dict[str, Any]:
    run = Run.open(folder)
    config, summary = run.config, run.summary() or {}
    measured = json.loads((folder / EVALUATION).read_text())
    machine = json.loads((folder / "environment.json").read_text())
    return {
        "experiment": config["name"],
        "seed": config["seed"],
        "data": config["data"]["name"],
        "network": config["network"]["name"],
        "method": config["method"]["name"],
        "epochs": summary["epochs"],
        "test_accuracy": f"{100 * measured['accuracy']:.2f}",
        "layer_accuracy": " ".join(f"{100 * layer['accuracy']:.2f}" for layer in measured["layers"]),
        "layer_bits": " ".join(f"{layer['bits']:.3f}" for layer in measured["layers"]),
        "training_samples": summary["training_samples"],
        **counts(Experiment.from_run(run)),
        "learning_rate": config["learning_rate"],
        "lr_schedule": config["lr_schedule"],
        "batch_size": config["batch_size"],
        "seconds": round(summary["seconds"]),
        "command": machine["command"],
        "hff": machine["hff"],
        "torch": machine["torch"],
        "python": machine["python"],
        "processor": machine["processor"],
        "threads": machine["threads"],
        "date": machine["started"][:10],
    }


def curve(folder: Path) -> Iterator[dict[str, Any]]:
    """Loss and validation accuracy of each layer, and accuracy of the read-out, for every epoch."""
    run = Run.open(folder)
    for record in run.metrics():
        read_out = record.get("read_out_accuracy")
        final = {} if read_out is None else {READ_OUT: read_out}
        for layer, share in {**record["validation_accuracy"], **final}.items():
            loss = record["loss"].get(f"block{layer}", record["loss"].get("network"))
            yield {
                "experiment": run.config["name"],
                "seed": run.config["seed"],
                "epoch": record["epoch"],
                "layer": layer,
                "loss": f"{loss:.4f}" if loss is not None else "",
                "validation_accuracy": f"{100 * share:.2f}",
            }


def tuning_row(folder: Path, varied: str) -> dict[str, Any]:
    """A trial, evaluated on the validation split."""
    run = Run.open(folder)
    config, summary, records = run.config, run.summary() or {}, run.metrics()
    machine = json.loads((folder / "environment.json").read_text())
    return {
        "data": config["data"]["name"],
        "network": config["network"]["name"],
        "method": config["method"]["name"],
        "varied": varied,
        "epochs": summary["epochs"],
        "training_samples": summary["training_samples"],
        "validation_accuracy": f"{100 * summary['read_out_accuracy']:.2f}",
        "layer_accuracy": " ".join(f"{100 * share:.2f}" for share in summary["validation_accuracy"].values()),
        "curve_of_last_layer": " ".join(
            f"{100 * list(record['validation_accuracy'].values())[-1]:.2f}"
            for record in records
            if record["validation_accuracy"]
        ),
        "seed": config["seed"],
        "command": machine["command"],
        **{key: machine[key] for key in ("hff", "torch", "processor", "threads")},
        "date": machine["started"][:10],
    }


def write_tuning(path: Path, rows: list[dict[str, Any]]) -> None:
    """Adds trials to the table and replaces those with the same commands."""
    fresh = {row["command"] for row in rows}
    with path.open(newline="") as file:
        kept = [row for row in csv.DictReader(file) if row["command"] not in fresh]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            sorted(
                [*kept, *rows], key=lambda row: [row[key] for key in ("data", "network", "method", "varied")]
            )
        )


def merge(path: Path, rows: list[dict[str, Any]]) -> None:
    """Adds rows to the table and replaces those of the same experiment and seed."""
    fresh = {(row["experiment"], str(row["seed"])) for row in rows}
    kept: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if (row["experiment"], row["seed"]) not in fresh]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*kept, *rows], key=lambda row: (row["experiment"], int(row["seed"]))))


def main() -> None:
    folders = run_folders([Path(argument) for argument in sys.argv[1:]])
    if not folders:
        sys.exit("None of the given runs has been evaluated on the test split: run `hff eval RUN` first.")
    merge(RESULTS / "accuracy.csv", [accuracy(folder) for folder in folders])
    merge(RESULTS / "curves.csv", [row for folder in folders for row in curve(folder)])


if __name__ == "__main__":
    main()
