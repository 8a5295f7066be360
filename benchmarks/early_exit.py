"""Accuracy and speed of early exit of finished runs: python benchmarks/early_exit.py runs/mnist_mlp-seed0

Writes results/bench/early_exit.csv, with a row for each run, largest loss of accuracy and number of threads:
the accuracy on the test split with early exit and with the full network, the share of samples that each layer
predicts, and the time of a prediction relative to the full network, in batches of 1 and 256. It is the report
of `hff eval RUN --early-exit --epsilon X`.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hff.bench import BenchResult
from hff.bench.early_exit import early_exit_report
from hff.bench.step import using_threads
from hff.experiment import Experiment
from hff.training import Run

FOLDER = Path(__file__).parent.parent / "results" / "bench"


def main(argv: Sequence[str] | None = None, folder: Path = FOLDER) -> None:
    parser = argparse.ArgumentParser(description="Measure early exit of finished runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.001, 0.005], metavar="X")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N")
    given = parser.parse_args(argv)
    found = [row for run in given.runs for count in given.threads for row in rows(run, count, given.epsilons)]
    (folder / "early_exit.csv").write_text(BenchResult("early_exit", tuple(found)).to_csv(), encoding="utf-8")


def rows(folder: Path, threads: int, epsilons: Sequence[float]) -> Iterator[dict[str, Any]]:
    """The rows of a run."""
    run = Run.open(folder)
    experiment = Experiment.from_run(run)
    with using_threads(threads):
        for epsilon in epsilons:
            report = early_exit_report(run, epsilon=epsilon, device="cpu")
            result, guarantee = report.evaluation, report.early_exit.guarantee
            row: dict[str, Any] = {
                "run": experiment.name,
                "seed": experiment.seed,
                "threads": threads,
                "epsilon": epsilon,
                "delta": guarantee.delta if guarantee else None,
                "calibration_samples": guarantee.samples if guarantee else None,
                "test_samples": result.samples,
                "full_accuracy": f"{result.full_accuracy:.4f}",
                "accuracy": f"{result.accuracy:.4f}",
                "lost": result.lost,
                "gained": result.gained,
                "share_of_each_layer": " ".join(f"{share:.4f}" for share in result.shares.values()),
            }
            for speed in report.speeds:
                size = speed.batch_size
                row |= {
                    f"full_ms_{size}": 1e3 * speed.full_seconds,
                    f"early_ms_{size}": 1e3 * speed.early_seconds,
                    f"time_ratio_{size}": 1 / speed.speed_up,
                }
            yield row


if __name__ == "__main__":
    main()
