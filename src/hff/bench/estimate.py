"""Estimates of the time that trainings take, from a few steps and predictions of each method."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from hff.bench.cost import (
    Task,
    epoch_seconds,
    interleaved,
    predictions,
    random_batch,
    training_steps,
)
from hff.bench.memory import STEPS, is_out_of_memory
from hff.device import wait_for
from hff.experiment import Experiment
from hff.methods import Stage
from hff.training.plan import RECORDS

PREDICTIONS = 250
"""Predictions that are timed together."""
PREDICTING = -1
"""Stands for predictions where a number stands for a stage."""
ROUNDS = 3
"""How often each task is timed. The median counts."""


class Candidate(Protocol):
    """A training to estimate."""

    @property
    def name(self) -> str:
        """The name of the training, by which its cost is found."""

    @property
    def experiment(self) -> Experiment:
        """The experiment to train."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the training that last at least an epoch."""


@dataclass(frozen=True)
class Cost:
    """The cost of a method on this machine."""

    step_seconds: tuple[float, ...]
    """Seconds of a training step, for each stage."""
    prediction_seconds: float
    """Seconds of one prediction."""


@dataclass(frozen=True)
class Estimate:
    """The remaining time of one or more trainings, in seconds."""

    training: float = 0.0
    evaluation: float = 0.0
    """Time of validation and test."""
    memory: float = 0.0
    """Time of measuring memory."""

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.training + self.evaluation + self.memory

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            self.training + other.training, self.evaluation + other.evaluation, self.memory + other.memory
        )


def measure_costs(
    candidates: Iterable[Candidate], in_shape: tuple[int, ...], classes: int, device: torch.device
) -> dict[str, Cost]:
    """Measures the cost of each method, except those for which there is not enough memory.

    The methods take turns, so that other load on the machine affects all of them alike.
    """
    candidates = list(candidates)
    tasks: dict[tuple[str, int], Task] = {}
    failed: set[str] = set()
    for candidate in candidates:
        name = candidate.name
        with _noting_out_of_memory(name, failed):
            found = _tasks(candidate, in_shape, classes, device)
            tasks |= {key: _unless_failed(task, name, failed) for key, task in found.items()}
    seconds = {key: statistics.median(each) for key, each in interleaved(tasks, ROUNDS).items()}
    costs = {}
    for candidate in candidates:
        name = candidate.name
        if name in failed:
            continue
        steps = tuple(seconds[name, number] for number in range(len(candidate.stages)))
        costs[name] = Cost(steps, seconds[name, PREDICTING] / PREDICTIONS)
    return costs


def _tasks(
    candidate: Candidate, in_shape: tuple[int, ...], classes: int, device: torch.device
) -> dict[tuple[str, int], Task]:
    """The tasks of a method by (name, number of the stage), and its predictions by (name, PREDICTING)."""
    experiment = candidate.experiment
    name, settings = candidate.name, experiment.training
    method = experiment.create_method(in_shape, classes).to(device)
    tasks: dict[tuple[str, int], Task] = {}
    for number, stage in enumerate(candidate.stages):
        size = stage.batch_size or settings.batch_size
        batch = random_batch(in_shape, classes, size, views=method.views).to(device)
        tasks[name, number] = _synchronized(training_steps(method, stage, settings, [batch]), device)
    images = random_batch(in_shape, classes, PREDICTIONS).to(device).x
    tasks[name, PREDICTING] = _synchronized(predictions(method, [images]), device)
    return tasks


@contextmanager
def _noting_out_of_memory(name: str, failed: set[str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        failed.add(name)


def _unless_failed(task: Task, name: str, failed: set[str]) -> Task:
    """The task of a method, which does nothing once the method has run out of memory."""

    def run() -> None:
        if name not in failed:
            with _noting_out_of_memory(name, failed):
                task()

    return run


def _synchronized(task: Task, device: torch.device) -> Task:
    """The task, including the wait for the device to complete it."""

    def run() -> None:
        task()
        wait_for(device)

    return run


def estimate(
    candidate: Candidate,
    cost: Cost | None,
    *,
    train: int,
    validation: int,
    test: int,
    spent: float = 0.0,
    seen: int = 0,
) -> Estimate:
    """Estimates the rest of a training and its evaluation.

    Args:
        candidate: the training.
        cost: its measured cost; None if it is unknown, and then only a time budget counts.
        train: size of the training split.
        validation: size of the validation split.
        test: size of the test split.
        spent: seconds that it has been trained already.
        seen: samples that it has been trained on already.
    """
    settings = candidate.experiment.training
    if cost is None:
        return Estimate(training=max(0.0, (settings.seconds or 0.0) - spent))
    epoch = epoch_seconds(candidate.stages, cost.step_seconds, settings, train)
    epochs = sum(stage.epochs for stage in candidate.stages)
    done = min(1.0, seen / (train * epochs))
    training, records = (1 - done) * epochs * epoch, (1 - done) * epochs
    if settings.seconds is not None:
        left = max(0.0, settings.seconds - spent)
        training = min(training, left) if settings.stop_at == "either" else left
        records = min(RECORDS * training / settings.seconds, training / epoch) + len(candidate.stages)
    # After the training, the scale of each layer is fitted on the validation split once.
    evaluated = (records + 1) * validation + test
    return Estimate(training, evaluated * cost.prediction_seconds)


def measuring_seconds(first: float, costs: Sequence[Cost | None]) -> float:
    """The time of measuring the memory of all methods but the first, given the time of the first.

    Apart from the training steps, a measurement takes the same time for all methods.

    Args:
        first: seconds of the first measurement.
        costs: the cost of each method; None if it is unknown.
    """
    steps = [0.0 if cost is None else STEPS * sum(cost.step_seconds) for cost in costs]
    return sum(steps[1:]) + (len(steps) - 1) * max(0.0, first - steps[0])
