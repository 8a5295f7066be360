"""Trains rules and backprop on the same network and images of CIFAR-10: python benchmarks/cifar10_gap.py

All subjects and backprop get the same 10,000 images and the same number of epochs in batches of 128, without
augmentation or weight decay, and Adam with a cosine schedule. Each learning rate is the best on the
validation images in trials with a third of the epochs. Three rates are tried, and then more until the best
one has a worse one on either side. The table results/cifar10_gap.csv contains the gap to backprop on the
same network, and the gap that the paper cites.

Runs are stored in runs/ of the working directory, and the trials in results/tuning.csv. If the script is
interrupted, run the same command again to resume. Finished runs are not repeated.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from subprocess import CalledProcessError
from typing import Any

from collect import RESULTS, accuracy, merge, write_tuning
from run_folders import Row, best_of, evaluated, trial

from hff.paper import find

IMAGES = 10_000
LADDER = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""All rates that can be tried."""
YARDSTICK = "backprop"
PAPER = "main_result_cnn"


@dataclass(frozen=True)
class Entrant:
    """A method to compare with backprop, the option that holds its rate, and the first rates to try."""

    recipe: str
    options: tuple[str, ...] = ()
    rate: str = "learning-rate"
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)


@dataclass(frozen=True)
class Ground:
    """A network shared by several subjects and backprop, and the number of epochs to train it."""

    blocks: str
    """Description of the network."""
    network: tuple[str, ...]
    epochs: int
    rivals: Mapping[str, Entrant]

    @property
    def subjects(self) -> dict[str, Entrant]:
        """All subjects by name; backprop comes first."""
        return {YARDSTICK: Entrant("cifar10_cnn_backprop"), **self.rivals}

    def command(self, subject: Entrant, rate: float, epochs: int, name: str) -> list[str]:
        """Arguments for `hff train`."""
        budget = ("--epochs", str(epochs), "--batch-size", "128")
        plain = ("--optimizer", "adam", "--lr-schedule", "cosine", "--weight-decay", "0")
        images = ("--data.limit", str(IMAGES), "--data.augment", "none")
        chosen = (f"--{subject.rate}", f"{rate:g}")
        options = (*budget, *plain, *images, *subject.options, *chosen)
        return [subject.recipe, *self.network, *options, "--name", name]

    def train(self, ground: str, name: str) -> tuple[list[Row], Row]:
        """Rows of a subject's trials, and the test result with its best rate."""
        subject, short = self.subjects[name], max(1, self.epochs // 3)
        varied = subject.rate.replace("method.", "").replace("-", "_")
        found: dict[float, Row] = {}
        tried: set[float] = set()
        ahead: Sequence[float] = subject.rates
        while ahead:
            for rate in ahead:
                arguments = self.command(subject, rate, short, f"gap_trial_{ground}_{name}_{rate:g}")
                # A rate at which training diverges is not a candidate.
                with suppress(CalledProcessError):
                    found[rate] = trial(arguments, f"{varied}={rate:g}")
            tried |= set(ahead)
            best = LADDER.index(best_of(found))
            ahead = [rate for rate in LADDER[max(0, best - 1) : best + 2] if rate not in tried]
        run = evaluated(self.command(subject, best_of(found), self.epochs, f"gap_{ground}_{name}"))
        return list(found.values()), accuracy(run.folder)


def cnn(activation: str, epochs: int, **rivals: Entrant) -> Ground:
    network = ("--network", "cnn", "--network.channels", "16,32,64", "--network.activation", activation)
    return Ground(f"cnn 16-32-64, {activation}", network, epochs, rivals)


GROUNDS = {
    "relu": cnn(
        "relu",
        12,
        fa=Entrant("cifar10_fa"),
        hebb=Entrant("cifar10_hebb", rate="method.rate", rates=(0.03, 0.1, 0.3)),
        hebb_linear=Entrant(
            "cifar10_hebb", ("--method.read-out-rule", "linear", "--method.block-epochs", "0.5")
        ),
    ),
    "tanh": cnn(
        "tanh",
        12,
        dfa=Entrant("cifar10_dfa"),
        ssdfa=Entrant("cifar10_ssdfa"),
        # Control: only the output learns, on random frozen convolutions.
        random_convolutions=Entrant("cifar10_dfa", ("--method.frozen", "conv")),
    ),
    "gelu": cnn("gelu", 12, predictive_coding=Entrant("cifar10_predictive_coding")),
    # Its relaxation takes fifty passes per batch.
    "small": Ground(
        "cnn 16-32",
        ("--network", "cnn", "--network.channels", "16,32"),
        3,
        {
            "equilibrium_prop": Entrant(
                "cifar10_equilibrium_prop",
                ("--method.layer-rates", "", "--method.free-steps", "30", "--method.nudged-steps", "10"),
            )
        },
    ),
    "softhebb": Ground(
        "softhebb 12-48-192",
        ("--network", "softhebb", "--network.width-factor", "0.125"),
        3,
        {
            "softhebb": Entrant("cifar10_softhebb"),
            "random_filters": Entrant("cifar10_softhebb", ("--method.rate", "0")),
        },
    ),
}


def gap_row(ground: str, subject: str, measured: Row, yardstick: Row) -> dict[str, Any]:
    """A row of the table: the gap to backprop on the same network, and the gap in the paper.

    Controls and variants have no claim in the paper.
    """
    ours = float(measured["test_accuracy"])
    cited = {
        method: found[0]
        for method in (measured["method"], YARDSTICK)
        if (found := find(table=PAPER, method=method, data="cifar10"))
    }
    claim, top = cited.get(subject), cited[YARDSTICK]
    reference = float(yardstick["test_accuracy"])
    return {
        "experiment": measured["experiment"],
        "seed": measured["seed"],
        "ground": ground,
        "subject": subject,
        "method": measured["method"],
        "blocks": GROUNDS[ground].blocks,
        "test_accuracy": measured["test_accuracy"],
        "backprop": yardstick["test_accuracy"],
        "gap": f"{reference - ours:.2f}",
        "cited": claim.printed if claim else "",
        "cited_backprop": top.printed,
        "cited_gap": f"{top.value - claim.value:.2f}" if claim else "",
        **{
            key: measured[key]
            for key in (
                "epochs",
                "training_samples",
                "learning_rate",
                "parameters",
                "prediction_parameters",
                "command",
            )
        },
        "backprop_learning_rate": yardstick["learning_rate"],
        "backprop_command": yardstick["command"],
        **{key: measured[key] for key in ("hff", "torch", "processor", "threads", "date")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help=f"comma-separated networks: {', '.join(GROUNDS)}")
    parser.add_argument("--workers", type=int, default=2, help="number of parallel runs (2)")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else list(GROUNDS)
    measured: dict[tuple[str, str], Row] = {}
    with ThreadPoolExecutor(given.workers) as pool:
        tasks = {
            pool.submit(GROUNDS[ground].train, ground, name): (ground, name)
            for ground in chosen
            for name in GROUNDS[ground].subjects
        }
        for task in as_completed(tasks):
            if error := task.exception():
                sys.stderr.write(f"{tasks[task]}: {error}\n")
                continue
            trials, measured[tasks[task]] = task.result()
            write_tuning(RESULTS / "tuning.csv", trials)
            write_gaps(measured)


def write_gaps(measured: Mapping[tuple[str, str], Row]) -> None:
    """Writes the gaps measured so far to the table."""
    rows = [
        gap_row(ground, name, row, measured[ground, YARDSTICK])
        for (ground, name), row in measured.items()
        if name != YARDSTICK and (ground, YARDSTICK) in measured
    ]
    if rows:
        merge(RESULTS / "cifar10_gap.csv", rows)


if __name__ == "__main__":
    main()
