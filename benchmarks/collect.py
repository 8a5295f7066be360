"""Collects finished and evaluated runs into a table: python benchmarks/collect.py runs/* > results/accuracy.csv

Each row is one seed: what was trained and how, the accuracy of every layer on the test split at the last epoch,
and the command, versions and hardware that it was measured with.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

from hff.training import Run

EVALUATION = "eval-test.json"


def run_folders(paths: list[Path]) -> list[Path]:
    """The run folders among the paths, with those of several seeds spread out."""
    folders = [inner for path in paths for inner in sorted(path.glob("seed-*")) or [path]]
    return [folder for folder in folders if (folder / EVALUATION).exists()]


def row(folder: Path) -> dict[str, Any]:
    run = Run.open(folder)
    config, summary = run.config, run.summary() or {}
    measured = json.loads((folder / EVALUATION).read_text())
    machine = json.loads((folder / "environment.json").read_text())
    return {
        "data": config["data"]["name"],
        "network": config["network"]["name"],
        "method": config["method"]["name"],
        "name": config["name"],
        "seed": config["seed"],
        "epochs": summary["epochs"],
        "test_accuracy": f"{100 * measured['accuracy']:.2f}",
        "layer_accuracy": " ".join(f"{100 * layer['accuracy']:.2f}" for layer in measured["layers"]),
        "training_samples": summary["training_samples"],
        "parameters": summary["parameters"],
        "learning_rate": config["learning_rate"],
        "schedule": config["schedule"],
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


def main() -> None:
    rows = [row(folder) for folder in run_folders([Path(argument) for argument in sys.argv[1:]])]
    if not rows:
        sys.exit("No run with an evaluation on the test split was given: run `hff eval RUN` first.")
    writer = csv.DictWriter(sys.stdout, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
