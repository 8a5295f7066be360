"""`hff bench convergence`: time and epochs until the validation accuracy stays above a target."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hff.bench.result import BenchResult
from hff.data import Batches, DataSet
from hff.errors import UserError
from hff.evaluation import layer_accuracy
from hff.methods import create_method
from hff.networks import create_network
from hff.training.settings import Settings
from hff.training.trainer import Trainer

METHODS = ("backprop", "hff", "ff")
TARGETS = (0.95, 0.97, 0.98)
RATES = (3e-4, 1e-3, 3e-3)
PATIENCE = 3
"""Consecutive epochs at or above the target, as in the paper."""


@dataclass
class Course:
    """The accuracy and the training time of each epoch of one training."""

    accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def epochs_to(self, target: float) -> int | None:
        """The number of epochs until the target has been held for `PATIENCE` epochs; None if it was not."""
        held = 0
        for epoch, accuracy in enumerate(self.accuracy, 1):
            held = held + 1 if accuracy >= target else 0
            if held == PATIENCE:
                return epoch
        return None


def bench_convergence(
    data: DataSet,
    methods: Sequence[str] = METHODS,
    *,
    widths: tuple[int, ...] = (2000, 2000, 2000),
    seeds: Sequence[int] = (0, 1, 2),
    rates: Sequence[float] = RATES,
    epochs: int = 30,
    batch_size: int = 128,
    report: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Trains an MLP until the validation accuracy has stayed above each target for three epochs.

    The learning rate of each method is the one with the best validation accuracy after one epoch of the first
    seed. The methods take turns after every epoch, and only training steps are timed.

    Args:
        data: the data set; it needs a validation split.
        methods: the methods; ratios are to the first one.
        widths: units of each layer.
        seeds: the seeds; results are means over them.
        rates: learning rates to choose from; the same ones for every method.
        epochs: when to give up.
        batch_size: the batch size.
        report: is told what is measured next.
    """
    if data.validation is None:
        raise UserError(f"The data set {data.name!r} has no validation split to measure convergence on.")

    def train(name: str, seed: int, rate: float) -> Iterator[tuple[float, float]]:
        return _epochs(name, data, widths, seed, rate, batch_size)

    chosen: dict[str, float] = {}
    for name in methods:
        report(f"{name}: learning rate")
        chosen[name] = max(rates, key=lambda rate: next(train(name, seeds[0], rate))[1])
    courses = {(name, seed): Course() for seed in seeds for name in methods}
    for seed in seeds:
        running = {name: train(name, seed, chosen[name]) for name in methods}
        for epoch in range(epochs):
            report(f"seed {seed}, epoch {epoch + 1}: {', '.join(running)}")
            for name in list(running):
                course = courses[name, seed]
                seconds, accuracy = next(running[name])
                course.seconds.append(seconds)
                course.accuracy.append(accuracy)
                if course.epochs_to(max(TARGETS)):
                    del running[name]
            if not running:
                break
    rows = _rows(courses, methods, seeds, chosen)
    return BenchResult("convergence", tuple({**row, "widths": "-".join(map(str, widths))} for row in rows))


def _epochs(
    name: str, data: DataSet, widths: tuple[int, ...], seed: int, rate: float, batch_size: int
) -> Iterator[tuple[float, float]]:
    """Yields (seconds, validation accuracy) of each epoch, without end."""
    network = create_network("mlp", data.in_shape, len(data.classes), widths=widths)
    method = create_method(name, network, len(data.classes), seed=seed)
    trainer = Trainer(method, Settings(learning_rate=rate, batch_size=batch_size), seed=seed)
    assert data.validation is not None
    held_out = Batches.in_order(data.validation, data.preprocessing, 512)
    epoch = 0
    while True:
        begun = time.perf_counter()
        for batch in data.batches(batch_size, epoch=epoch, seed=seed):
            trainer.step(batch)
        seconds = time.perf_counter() - begun
        _, accuracy = layer_accuracy(method, held_out.epoch(0), "cpu")
        yield seconds, accuracy
        epoch += 1


def _rows(
    courses: dict[tuple[str, int], Course],
    methods: Sequence[str],
    seeds: Sequence[int],
    chosen: dict[str, float],
) -> Iterator[dict[str, Any]]:
    for target in TARGETS:
        seconds: dict[str, float | None] = {}
        for name in methods:
            own = [courses[name, seed] for seed in seeds]
            counts = [course.epochs_to(target) for course in own]
            reached = [count for count in counts if count is not None]
            # A mean over some of the seeds would look better than the method is.
            complete = len(reached) == len(seeds)
            times = [sum(course.seconds[:count]) for course, count in zip(own, counts, strict=True) if count]
            seconds[name] = statistics.mean(times) if complete else None
            mine, base = seconds[name], seconds[methods[0]]
            yield {
                "target": target,
                "method": name,
                "learning_rate": chosen[name],
                "seeds": len(seeds),
                "seeds_that_reach_it": len(reached),
                "epochs": statistics.mean(reached) if complete else None,
                "seconds": mine,
                "seconds_std": statistics.stdev(times) if complete and len(times) > 1 else None,
                f"ratio_to_{methods[0]}": mine / base if mine is not None and base is not None else None,
                "best_accuracy": statistics.mean(max(course.accuracy) for course in own),
            }
