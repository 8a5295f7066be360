"""Trains rules beside backprop on CIFAR-10, on the same network and images: python benchmarks/cifar10_gap.py

Every method and backprop get the same 10,000 images, the same epochs in batches of 128 and a cosine schedule,
and a learning rate that is the best of three in trials of a third of the epochs on the validation images. The
table results/cifar10_gap.csv has the gap to backprop on the same network, and the gap that the paper cites.

Runs go into runs/ of the working directory. What is finished is not done again, what was stopped goes on,
and the trials are written into results/tuning.csv.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from collect import RESULTS, accuracy, merge, write_tuning
from runs import Row, best_of, evaluated, trial

from hff.paper import find

RATES = (3e-4, 1e-3, 3e-3)
IMAGES = 10_000
YARDSTICK = "backprop"


@dataclass(frozen=True)
class Ground:
    """A network that a method and backprop share, and for how many epochs they train it."""

    name: str
    network: tuple[str, ...]
    epochs: int
    methods: tuple[str, ...]

    def command(self, method: str, rate: float, epochs: int, name: str) -> list[str]:
        """The arguments of `hff train`."""
        recipe = "cifar10_cnn_backprop" if method == YARDSTICK else f"cifar10_{method}"
        budget = ("--epochs", str(epochs), "--data.limit", str(IMAGES), "--batch-size", "128")
        rates = ("--schedule", "cosine", "--optimizer", "adam", "--learning-rate", f"{rate:g}")
        return [recipe, *self.network, *budget, *rates, "--data.augment", "none", "--name", name]

    def train(self, method: str) -> tuple[list[Row], Row]:
        """The rows of the trials, and what the best rate gave on the test split."""
        found = {
            rate: trial(
                self.command(
                    method, rate, max(1, self.epochs // 3), f"gap_trial_{self.name}_{method}_{rate:g}"
                ),
                rate,
            )
            for rate in RATES
        }
        run = evaluated(self.command(method, best_of(found), self.epochs, f"gap_{self.name}_{method}"))
        return list(found.values()), accuracy(run.folder)


GROUNDS = (
    Ground(
        "cnn",
        ("--network", "cnn", "--network.channels", "32,64,128"),
        9,
        ("fa", "dfa", "ssdfa", "hebb", "predictive_coding"),
    ),
    # Its relaxation takes a hundred passes a batch.
    Ground("small_cnn", ("--network", "cnn", "--network.channels", "16,32"), 3, ("equilibrium_prop",)),
    Ground("softhebb", ("--network", "softhebb", "--network.width-factor", "0.25"), 6, ("softhebb",)),
)


def gap_row(measured: Row, yardstick: Row) -> dict[str, Any]:
    """A line of the table: the gap to backprop on the same network, and the paper's."""
    ours = float(measured["test_accuracy"])
    cited = {
        method: found[0]
        for method in (measured["method"], YARDSTICK)
        if (found := find(table="main_result_cnn", method=method, data="cifar10"))
    }
    claim, top = cited.get(measured["method"]), cited[YARDSTICK]
    reference = float(yardstick["test_accuracy"])
    return {
        "experiment": measured["experiment"],
        "seed": measured["seed"],
        "method": measured["method"],
        "network": measured["network"],
        "test_accuracy": measured["test_accuracy"],
        "backprop": yardstick["test_accuracy"],
        "gap": f"{reference - ours:.2f}",
        "cited": claim.printed if claim else "",
        "cited_backprop": top.printed,
        "cited_gap": f"{top.value - claim.value:.2f}" if claim else "",
        **{
            key: measured[key]
            for key in ("epochs", "training_samples", "learning_rate", "parameters", "command")
        },
        "backprop_learning_rate": yardstick["learning_rate"],
        "backprop_command": yardstick["command"],
        **{key: measured[key] for key in ("hff", "torch", "processor", "threads", "date")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="names of grounds, separated by commas")
    parser.add_argument("--workers", type=int, default=2, help="how many runs at the same time (2)")
    given = parser.parse_args()
    chosen = [ground for ground in GROUNDS if not given.only or ground.name in given.only.split(",")]
    measured: dict[tuple[str, str], Row] = {}
    with ThreadPoolExecutor(given.workers) as pool:
        tasks = {
            pool.submit(ground.train, method): (ground.name, method)
            for ground in chosen
            for method in (YARDSTICK, *ground.methods)
        }
        for task in as_completed(tasks):
            if error := task.exception():
                sys.stderr.write(f"{tasks[task]}: {error}\n")
                continue
            trials, measured[tasks[task]] = task.result()
            write_tuning(RESULTS / "tuning.csv", trials)
    rows = [
        gap_row(row, measured[ground, YARDSTICK])
        for (ground, method), row in measured.items()
        if method != YARDSTICK and (ground, YARDSTICK) in measured
    ]
    if rows:
        merge(RESULTS / "cifar10_gap.csv", rows)


if __name__ == "__main__":
    main()
