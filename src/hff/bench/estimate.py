"""How long a comparison will take, from a few steps and predictions of each method."""

import statistics
from collections.abc import Iterable
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
from hff.experiment import Experiment
from hff.methods import Stage
from hff.training.fit import wait_for
from hff.training.plan import RECORDS

PREDICTIONS = 250
"""How many are timed at once."""
ROUNDS = 3


class Candidate(Protocol):
    """A training whose cost is wanted."""

    @property
    def experiment(self) -> Experiment: ...

    @property
    def stages(self) -> tuple[Stage, ...]: ...


@dataclass(frozen=True)
class Cost:
    """What a method takes on this machine."""

    step_seconds: tuple[float, ...]
    """Of a training step of each stage."""
    prediction_seconds: float
    """Of one prediction."""


@dataclass(frozen=True)
class Estimate:
    """How long the rest of a comparison takes, in seconds."""

    training: float = 0.0
    evaluation: float = 0.0
    """Validation and test."""
    memory: float = 0.0

    @property
    def total(self) -> float:
        return self.training + self.evaluation + self.memory

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            self.training + other.training, self.evaluation + other.evaluation, self.memory + other.memory
        )


def measure_costs(
    candidates: Iterable[Candidate], in_shape: tuple[int, ...], classes: int, device: torch.device
) -> dict[str, Cost]:
    """The costs of methods that take turns, so that what else the machine does falls on all alike."""
    candidates = list(candidates)
    tasks: dict[tuple[str, int], Task] = {}
    for candidate in candidates:
        tasks |= _tasks(candidate, in_shape, classes, device)
    seconds = {key: statistics.median(each) for key, each in interleaved(tasks, ROUNDS).items()}
    return {
        each.experiment.method.name: Cost(
            tuple(seconds[each.experiment.method.name, number] for number in range(len(each.stages))),
            seconds[each.experiment.method.name, -1] / PREDICTIONS,
        )
        for each in candidates
    }


def _tasks(
    candidate: Candidate, in_shape: tuple[int, ...], classes: int, device: torch.device
) -> dict[tuple[str, int], Task]:
    """One step of each stage, by its number, and predictions under -1."""
    settings = candidate.experiment.training
    method = candidate.experiment.create_method(in_shape, classes).to(device)
    tasks: dict[tuple[str, int], Task] = {}
    for number, stage in enumerate(candidate.stages):
        size = stage.batch_size or settings.batch_size
        batch = random_batch(in_shape, classes, size, views=method.views).to(device)
        tasks[candidate.experiment.method.name, number] = _to_the_end(
            training_steps(method, stage, settings, [batch]), device
        )
    images = random_batch(in_shape, classes, PREDICTIONS).to(device).x
    tasks[candidate.experiment.method.name, -1] = _to_the_end(predictions(method, [images]), device)
    return tasks


def _to_the_end(task: Task, device: torch.device) -> Task:
    def run() -> None:
        task()
        wait_for(device)

    return run


def estimate(
    candidate: Candidate,
    cost: Cost,
    *,
    train: int,
    validation: int,
    test: int,
    spent: float = 0.0,
    seen: int = 0,
) -> Estimate:
    """The rest of one method's training, and its evaluation.

    Args:
        candidate: the training.
        cost: what it takes here.
        train: samples of the training split.
        validation: samples of the validation split.
        test: samples of the test split.
        spent: training seconds spent already.
        seen: samples trained on already.
    """
    settings = candidate.experiment.training
    epoch = epoch_seconds(candidate.stages, cost.step_seconds, settings, train)
    epochs = sum(stage.epochs for stage in candidate.stages)
    if settings.seconds is None:
        done = min(1.0, seen / (train * epochs))
        training, records = (1 - done) * epochs * epoch, (1 - done) * epochs
    else:
        training = max(0.0, settings.seconds - spent)
        records = min(RECORDS * training / settings.seconds, training / epoch) + len(candidate.stages)
    # After the test each layer's scale is fitted to the validation split.
    evaluated = (records + 1) * validation + test
    return Estimate(training, evaluated * cost.prediction_seconds)
