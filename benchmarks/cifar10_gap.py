"""Trains rules beside backprop on CIFAR-10, on the same network and images: python benchmarks/cifar10_gap.py

Every subject and backprop get the same 10,000 images, the same epochs in batches of 128 without augmentation
or weight decay, Adam with a cosine schedule, and the best rate in trials of a third of the epochs on the
validation images: three are tried, and further ones until the best has a worse one on either side. The table
results/cifar10_gap.csv has the gap to backprop on the same network, and the gap that the paper cites.

Runs go into runs/ of the working directory. What is finished is not done again, what was stopped goes on,
and the trials are written into results/tuning.csv.
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
from runs import Row, best_of, evaluated, trial

from hff.paper import find

IMAGES = 10_000
LADDER = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""All rates that may be tried."""
YARDSTICK = "backprop"
PAPER = "main_result_cnn"


@dataclass(frozen=True)
class Entrant:
    """What is trained beside backprop, and which of its rates is chosen by trials, beginning with these."""

    recipe: str
    options: tuple[str, ...] = ()
    rate: str = "learning-rate"
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)


@dataclass(frozen=True)
class Ground:
    """A network that all its subjects and backprop share, and for how many epochs they train it."""

    blocks: str
    """The network in words."""
    network: tuple[str, ...]
    epochs: int
    rivals: Mapping[str, Entrant]

    @property
    def subjects(self) -> dict[str, Entrant]:
        """By name; backprop is the first."""
        return {YARDSTICK: Entrant("cifar10_cnn_backprop"), **self.rivals}

    def command(self, subject: Entrant, rate: float, epochs: int, name: str) -> list[str]:
        """The arguments of `hff train`."""
        budget = ("--epochs", str(epochs), "--batch-size", "128")
        plain = ("--optimizer", "adam", "--lr-schedule", "cosine", "--weight-decay", "0")
        images = ("--data.limit", str(IMAGES), "--data.augment", "none")
        chosen = (f"--{subject.rate}", f"{rate:g}")
        options = (*budget, *plain, *images, *subject.options, *chosen)
        return [subject.recipe, *self.network, *options, "--name", name]

    def train(self, ground: str, name: str) -> tuple[list[Row], Row]:
        """The rows of a subject's trials, and what its best rate gave on the test split."""
        subject, short = self.subjects[name], max(1, self.epochs // 3)
        varied = subject.rate.replace("method.", "").replace("-", "_")
        found: dict[float, Row] = {}
        tried: set[float] = set()
        ahead: Sequence[float] = subject.rates
        while ahead:
            for rate in ahead:
                arguments = self.command(subject, rate, short, f"gap_trial_{ground}_{name}_{rate:g}")
                # A rate at which it diverges is no candidate.
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
        # What the output learns on convolutions that stay random.
        random_convolutions=Entrant("cifar10_dfa", ("--method.rest", "conv")),
    ),
    "gelu": cnn("gelu", 12, predictive_coding=Entrant("cifar10_predictive_coding")),
    # Its relaxation takes fifty passes a batch.
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
    """A line of the table: the gap to backprop on the same network, and the paper's.

    A control or a variant has no claim of its own.
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
            for key in ("epochs", "training_samples", "learning_rate", "parameters", "command")
        },
        "backprop_learning_rate": yardstick["learning_rate"],
        "backprop_command": yardstick["command"],
        **{key: measured[key] for key in ("hff", "torch", "processor", "threads", "date")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help=f"grounds, separated by commas: {', '.join(GROUNDS)}")
    parser.add_argument("--workers", type=int, default=2, help="how many runs at the same time (2)")
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
    """Puts what has been measured beside backprop into the table."""
    rows = [
        gap_row(ground, name, row, measured[ground, YARDSTICK])
        for (ground, name), row in measured.items()
        if name != YARDSTICK and (ground, YARDSTICK) in measured
    ]
    if rows:
        merge(RESULTS / "cifar10_gap.csv", rows)


if __name__ == "__main__":
    main()
