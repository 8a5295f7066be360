"""The cost of a method: time per training step and per prediction. `memory.py` measures the memory.

Everything is measured on the CPU with random inputs, so no data files are needed. Loading and augmenting
data, validation and checkpoints are excluded: they are the same for every method.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from hff.batch import Batch
from hff.evaluation.accuracy import evaluation_mode
from hff.methods import Method, Stage
from hff.randomness import generator
from hff.training.settings import Settings
from hff.training.trainer import Trainer

Task = Callable[[], None]
"""A piece of work that can be timed repeatedly."""

Name = TypeVar("Name", bound=Hashable)


def random_batch(in_shape: Sequence[int], classes: int, size: int, *, step: int = 0, views: int = 1) -> Batch:
    """A batch of normally distributed views [size, *in_shape], similar to preprocessed data."""
    draw = generator("cost", step)
    x, *other_views = (torch.randn(size, *in_shape, generator=draw) for _ in range(views))
    y = torch.randint(classes, (size,), generator=draw)
    return Batch(x, y, torch.arange(size) + step * size, (0, 0, 0, step), tuple(other_views))


def training_steps(method: Method, stage: Stage, settings: Settings, batches: Sequence[Batch]) -> Task:
    """A task that trains for one step on each batch, including everything that follows a step.

    The task changes the method. The initialization of the stage from the data is done here and not timed.
    """
    trainer = Trainer(method, settings, stage=stage)
    trainer.prepare(batches)

    def train() -> None:
        for batch in batches:
            trainer.step(batch)

    return train


def predictions(method: Method, batches: Sequence[Tensor]) -> Task:
    """A task that predicts each batch [B, ...] once, in evaluation mode and without gradients."""

    def predict() -> None:
        with evaluation_mode(method):
            for x in batches:
                method(x)

    return predict


def interleaved(
    tasks: Mapping[Name, Task],
    rounds: int,
    *,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, list[float]]:
    """The time of each task in each round, in seconds. Each round runs all tasks once.

    Temporary load on the machine then affects all tasks equally. The first `warm_up` rounds, in which memory
    is allocated and kernels are selected, are not counted.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in tasks}
    for turn in range(warm_up + rounds):
        for name, task in tasks.items():
            started = clock()
            task()
            if turn >= warm_up:
                seconds[name].append(clock() - started)
    return seconds


def trained_stages(method: Method, settings: Settings) -> list[Stage]:
    """The stages of a training that last at least one epoch."""
    return [stage for stage in method.stages(settings.epochs) if stage.epochs > 0]


def step_seconds(stages: Sequence[Stage], seconds: Sequence[float]) -> float:
    """The mean time of a step, from the times of each stage, weighted by epochs."""
    shares = [stage.epochs / sum(each.epochs for each in stages) for stage in stages]
    return sum(share * each for share, each in zip(shares, seconds, strict=True))


def epoch_seconds(
    stages: Sequence[Stage], seconds: Sequence[float], settings: Settings, images: int
) -> float:
    """The mean time of an epoch with this number of images, from the time of a step of each stage.

    Stages are weighted by their epochs, and a stage with its own batch size has its own number of steps. An
    incomplete last batch counts as a fraction of a step.
    """
    steps = [images / (stage.batch_size or settings.batch_size) for stage in stages]
    return step_seconds(stages, [count * each for count, each in zip(steps, seconds, strict=True)])
