"""Trains every method at one equal small budget: python benchmarks/equal_budget.py [--only ff,symba]

Every method gets 6 epochs over 55,000 images of MNIST and of Fashion-MNIST, batches of 128, a cosine
schedule, and the same blocks where its rule allows it: 3 x 1000 fully connected, or the small CNN. Its
learning rate is the best of at least three short trials on the validation images of MNIST: its declared rate,
a neighbor on either side, and further ones until the best rate has a worse one on either side, as in
docs/protocol.md.

Runs are stored in runs/ of the working directory, and the trials in results/tuning.csv. If the script is
interrupted, run the same command again to resume. Finished runs are not repeated. Afterwards, run:

    python benchmarks/collect.py runs/*_small-seed0
    python benchmarks/cost.py runs/mnist_*_small-seed0/config.yaml
    python benchmarks/rivals.py
    python benchmarks/figures.py
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from collect import RESULTS, write_tuning
from run_folders import Row, best_of, evaluated, trial

from hff.comparison.rates import RateSearch
from hff.methods import methods
from hff.recipes import read

WIDTHS = "1000,1000,1000"
EPOCHS = 6
TRIAL = ("--data.limit", "10000", "--epochs", "3")
DATA = ("mnist", "fashion_mnist")
OWN = {
    "tff": ("--data.augment", "none"),
    # Each of its ten blocks has its own network. Half of the blocks learn from each batch.
    "noprop_dt": ("--network.channels", "4,8", "--method.blocks-per-step", "5"),
    # Their relaxation takes many passes per batch, so they use the widths that were published for them.
    "equilibrium_prop": ("--network.widths", "512"),
    "predictive_coding": ("--network.widths", "128,128,128"),
}
"""Options that keep a subject within the budget."""
YARDSTICKS = {"hff": "mlp", "backprop": "mlp_backprop", "hff_cnn": "cnn", "backprop_cnn": "cnn_backprop"}
"""Recipes of these subjects are named after the network."""


def subjects() -> list[str]:
    """All methods, and the reference methods also on the small CNN."""
    return [*YARDSTICKS, *sorted(set(methods) - set(YARDSTICKS))]


def recipe_of(subject: str, data: str) -> str:
    return f"{data}_{YARDSTICKS.get(subject, subject)}"


def command(subject: str, data: str, rate: float, name: str, *more: str) -> list[str]:
    """Arguments for `hff train`."""
    recipe = recipe_of(subject, data)
    network = read(recipe)["network"]["name"]
    blocks = ("--network.widths", WIDTHS) if network == "mlp" else ()
    budget = more or ("--epochs", str(EPOCHS))
    shared = ("--batch-size", "128", "--lr-schedule", "cosine", "--learning-rate", f"{rate:g}")
    return [recipe, *budget, *shared, *blocks, *OWN.get(subject, ()), "--name", name]


def by_rate(subject: str) -> dict[float, Row]:
    """Results of short trials on MNIST by learning rate."""
    name = read(recipe_of(subject, DATA[0]))["method"]["name"]
    search = RateSearch(methods[name].info.learning_rate, "search")
    found: dict[float, Row] = {}
    while (
        rate := search.next({rate: float(row["validation_accuracy"]) for rate, row in found.items()})
    ) is not None:
        found[rate] = _trial(subject, rate)
    return found


def trials_of(subject: str) -> list[Row]:
    """Rows of a subject's trials."""
    return list(by_rate(subject).values())


def train(subject: str) -> list[Row]:
    """Trains and evaluates a subject on both data sets; returns the rows of its trials."""
    found = by_rate(subject)
    for data in DATA:
        evaluated(command(subject, data, best_of(found), f"{data}_{subject}_small"))
    return list(found.values())


def _trial(subject: str, rate: float) -> Row:
    arguments = command(subject, DATA[0], rate, f"trial_{subject}_{rate:g}", *TRIAL)
    return trial(arguments, f"learning_rate={rate:g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="comma-separated names of methods")
    parser.add_argument("--trials", action="store_true", help="only run the learning-rate trials")
    parser.add_argument("--workers", type=int, default=2, help="number of parallel runs (2)")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else subjects()
    with ThreadPoolExecutor(given.workers) as pool:
        work = trials_of if given.trials else train
        tasks = {pool.submit(work, subject): subject for subject in chosen}
        for task in as_completed(tasks):
            if error := task.exception():
                sys.stderr.write(f"{tasks[task]}: {error}\n")
            else:
                write_tuning(RESULTS / "tuning.csv", task.result())


if __name__ == "__main__":
    main()
