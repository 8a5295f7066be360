"""What early exit of a run costs and gains: accuracy, the layers that predict, and measured speed."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from hff.bench.cost import Task, interleaved
from hff.data import DataSet
from hff.device import wait_for
from hff.evaluation import EarlyExit, ExitEvaluation, Split, evaluate_exit
from hff.evaluation.evaluate import examples_of
from hff.methods import Method
from hff.randomness import permutation
from hff.trained import early_exit_of, evaluation_data, load_method
from hff.training import Run, pick_device

BATCH_SIZES = (1, 256)
ROUNDS = 9
ROUND_SECONDS = 0.2
"""About how long the full network predicts in one round of the measurement."""


@dataclass(frozen=True)
class ExitSpeed:
    """The time of a prediction in batches of one size. Absolute times are those of this machine."""

    batch_size: int
    full_seconds: float
    """The median time of one sample in the full network."""
    early_seconds: float
    """The median time of one sample with early exit."""
    speed_up: float
    """The median over the rounds of the ratio of both times; above 1, early exit is faster."""


@dataclass(frozen=True)
class ExitReport:
    """The result of `early_exit_report`."""

    early_exit: EarlyExit
    evaluation: ExitEvaluation
    speeds: tuple[ExitSpeed, ...]

    def to_json(self) -> dict[str, Any]:
        """The result as a dictionary of numbers."""
        return {
            **self.evaluation.to_json(),
            "early_exit": self.early_exit.to_json(),
            "speeds": [asdict(speed) for speed in self.speeds],
        }


def early_exit_report(
    run: Run | Path | str,
    threshold: float | None = None,
    *,
    epsilon: float = 0.005,
    delta: float = 0.05,
    split: Split | None = None,
    path: Path | str | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    batch_sizes: Sequence[int] = BATCH_SIZES,
) -> ExitReport:
    """Calibrates early exit for a run, and compares it with the full network in accuracy and speed.

    Args:
        run: the run or its folder.
        threshold: a plain threshold of the probability, without a guarantee; None calibrates one with
            `calibrate_exit` and saves it in the folder of a finished run.
        epsilon: the largest loss of accuracy.
        delta: the probability that the loss is larger.
        split: the split to evaluate on. The default is "test", and "all" for new data.
        path: where the data of the run is now, or new labeled data, as in `evaluate_run`.
        data_dir: the folder of data files.
        device: the device to compute on.
        batch_sizes: the sizes of the batches whose prediction is timed.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    method, chosen = load_method(run), pick_device(device)
    data, is_new = evaluation_data(run, path=path, data_dir=data_dir)
    own = None if is_new else data
    early_exit = early_exit_of(
        run, method, threshold, epsilon=epsilon, delta=delta, data=own, data_dir=data_dir, device=device
    )
    split = split or ("all" if is_new else "test")
    evaluation = evaluate_exit(method, data, early_exit, split, device=chosen)
    x = _inputs(data, split, max(batch_sizes)).to(chosen)
    speeds = tuple(exit_speed(method, x, early_exit, size) for size in batch_sizes)
    return ExitReport(early_exit, evaluation, speeds)


def exit_speed(
    method: Method, x: Tensor, early_exit: EarlyExit, batch_size: int, rounds: int = ROUNDS
) -> ExitSpeed:
    """The time of predicting inputs [N, ...] in batches of this size, with and without early exit.

    Both take turns, so that other load on the machine affects them equally.
    """
    parts = x.split(batch_size)
    method.predict(parts[0])
    started = time.perf_counter()
    method.predict(parts[0])
    wait_for(x.device)
    count = round(ROUND_SECONDS / max(1e-6, time.perf_counter() - started))
    # At least a few batches, because how early samples leave differs between them.
    batches = [parts[i % len(parts)] for i in range(min(max(count, 8), 1000))]
    samples = sum(map(len, batches))

    def predicting(policy: EarlyExit | bool) -> Task:
        def predict() -> None:
            for batch in batches:
                method.predict(batch, policy)
            wait_for(x.device)

        return predict

    seconds = interleaved({"full": predicting(False), "early": predicting(early_exit)}, rounds)
    ratios = [full / early for full, early in zip(seconds["full"], seconds["early"], strict=True)]
    return ExitSpeed(
        batch_size,
        statistics.median(seconds["full"]) / samples,
        statistics.median(seconds["early"]) / samples,
        statistics.median(ratios),
    )


def _inputs(data: DataSet, split: str, count: int) -> Tensor:
    """Network inputs [N, ...]: random samples of a split, at most `count` of them."""
    examples = examples_of(data, split)
    chosen = permutation(len(examples), "early exit speed")[:count].sort().values
    x: Tensor = data.preprocessing(examples.fetch(chosen))
    return x
