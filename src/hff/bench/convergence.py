"""`hff bench convergence`: time and epochs until the validation accuracy stays above a target."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from hff.bench.course import PATIENCE, VALIDATIONS, Course, CourseFile
from hff.bench.result import BenchResult
from hff.data import Batches, DataSet
from hff.errors import UserError
from hff.evaluation import layer_accuracy
from hff.methods import create_method
from hff.networks import create_network
from hff.training.run import environment
from hff.training.settings import Settings
from hff.training.trainer import Trainer

METHODS = ("backprop", "hff", "ff")
TARGETS = (0.95, 0.97, 0.98)
RATES = (3e-4, 1e-3, 3e-3, 1e-2)


@dataclass(frozen=True)
class _Task:
    """What is trained."""

    data: DataSet
    widths: tuple[int, ...]
    batch_size: int

    def train(self, name: str, seed: int, rate: float) -> Iterator[tuple[float, float]]:
        """Yields (seconds of training, validation accuracy) of each part of an epoch, without end."""
        data = self.data
        network = create_network("mlp", data.in_shape, len(data.classes), widths=self.widths)
        method = create_method(name, network, len(data.classes), seed=seed)
        trainer = Trainer(method, Settings(learning_rate=rate, batch_size=self.batch_size), seed=seed)
        assert data.validation is not None
        held_out = Batches.in_order(data.validation, data.preprocessing, 512)
        steps = -(-len(data.train) // self.batch_size)
        ends = [steps * (part + 1) // VALIDATIONS for part in range(VALIDATIONS)]
        epoch = 0
        while True:
            batches, done = data.batches(self.batch_size, epoch=epoch, seed=seed), 0
            for end in ends:
                begun = time.perf_counter()
                for batch in islice(batches, end - done):
                    trainer.step(batch)
                seconds, done = time.perf_counter() - begun, end
                yield seconds, layer_accuracy(method, held_out.epoch(0), "cpu")[1]
            epoch += 1


def bench_convergence(
    data: DataSet,
    methods: Sequence[str] = METHODS,
    *,
    widths: tuple[int, ...] = (2000, 2000, 2000),
    seeds: Sequence[int] = (0, 1, 2),
    rates: Sequence[float] = RATES,
    epochs: int = 30,
    batch_size: int = 128,
    folder: Path | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Trains an MLP until the validation accuracy has stayed above each target for three epochs.

    `epochs` and `seconds` count, as in the paper, until three epochs in a row have ended at or above the
    target. `seconds_to_reach` is finer: with four validations in every epoch, it ends at the first one from
    which on the accuracy stays at or above the target for three epochs. Only training is timed, including the
    preparation of the batches.

    The learning rate of each method is the one with the highest mean accuracy over the validations of the
    first three epochs, which counts how early the accuracy is reached and how high it gets. The methods take
    turns after every validation.

    Args:
        data: the data set; it needs a validation split.
        methods: the methods; ratios are to backprop, which is always trained.
        widths: units of each layer.
        seeds: the seeds; results are means over them. Rates are chosen with the first one.
        rates: learning rates to choose from; the same ones for every method.
        epochs: when to give up.
        batch_size: the batch size.
        folder: a folder for what is finished, which a later call with the same arguments reads again.
        report: is told what is measured next.
    """
    if data.validation is None:
        raise UserError(f"The data set {data.name!r} has no validation split to measure convergence on.")
    methods = list(dict.fromkeys(["backprop", *methods]))
    task = _Task(data, tuple(widths), batch_size)
    threads = torch.get_num_threads()
    machine = {name: each for name, each in environment().items() if name in ("processor", "torch")}
    conditions = {
        "data": data.fingerprint,
        "widths": widths,
        "batch_size": batch_size,
        "epochs": epochs,
        "targets": TARGETS,
        "validations": VALIDATIONS,
        "threads": threads,
        **machine,
    }
    kept = CourseFile(folder, conditions)
    trials = PATIENCE * VALIDATIONS
    chosen: dict[str, float] = {}
    for name in methods:
        results: dict[float, float] = {}
        for rate in rates:
            report(f"{name}, trial of rate {rate:g}")
            found = kept.trial(name, rate)
            if found is None:
                found = statistics.mean(each for _, each in islice(task.train(name, seeds[0], rate), trials))
                kept.keep_trial(name, rate, found)
            results[rate] = found
        chosen[name] = max(results, key=lambda rate: results[rate])
    courses: dict[tuple[str, int], Course] = {}
    for seed in seeds:
        known = {name: kept.course(name, seed, chosen[name]) for name in methods}
        courses |= {(name, seed): course for name, course in known.items() if course is not None}
        missing = {name: chosen[name] for name, course in known.items() if course is None}
        for name, course in _side_by_side(task, seed, missing, epochs, report):
            kept.keep_course(name, seed, chosen[name], course)
            courses[name, seed] = course
    common = {"widths": "-".join(map(str, widths)), "threads": threads}
    rows = _rows(courses, methods, seeds, chosen)
    return BenchResult("convergence", tuple({**row, **common} for row in rows))


def _side_by_side(
    task: _Task, seed: int, rates: Mapping[str, float], epochs: int, report: Callable[[str], None]
) -> Iterator[tuple[str, Course]]:
    """Yields (method, course) when a training is over; the methods take turns after every validation."""
    running = {name: (task.train(name, seed, rate), Course()) for name, rate in rates.items()}
    for number in range(epochs * VALIDATIONS):
        report(f"seed {seed}, epoch {number // VALIDATIONS + 1}: {', '.join(running)}")
        for name, (training, course) in list(running.items()):
            course.add(*next(training))
            if course.over(max(TARGETS)):
                yield name, running.pop(name)[1]
    for name, (_, course) in running.items():
        yield name, course


def _rows(
    courses: Mapping[tuple[str, int], Course],
    methods: Sequence[str],
    seeds: Sequence[int],
    chosen: Mapping[str, float],
) -> Iterator[dict[str, Any]]:
    for target in TARGETS:
        base: dict[str, float | None] = {}
        for name in methods:
            own = [courses[name, seed] for seed in seeds]
            counts = [course.epochs_to(target) for course in own]
            held = [course.seconds_to(target) for course in own]
            reached = [course.seconds_to_reach(target) for course in own]
            means = {"seconds": _mean(held), "seconds_to_reach": _mean(reached)}
            if name == "backprop":
                base = means
            yield {
                "target": target,
                "method": name,
                "learning_rate": chosen[name],
                "seeds": len(seeds),
                "seeds_that_hold_it": sum(each is not None for each in counts),
                "epochs": _mean(counts),
                "epochs_std": _std(counts),
                "seconds": means["seconds"],
                "seconds_std": _std(held),
                "ratio_to_backprop": _quotient(means["seconds"], base["seconds"]),
                "seconds_to_reach": means["seconds_to_reach"],
                "seconds_to_reach_std": _std(reached),
                "ratio_to_reach": _quotient(means["seconds_to_reach"], base["seconds_to_reach"]),
                "best_accuracy": statistics.mean(max(course.accuracy) for course in own),
            }


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None if a value is missing, because the mean of the others would look too good."""
    known = [value for value in values if value is not None]
    return statistics.mean(known) if len(known) == len(values) else None


def _std(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.stdev(known) if len(known) == len(values) > 1 else None


def _quotient(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value / base
