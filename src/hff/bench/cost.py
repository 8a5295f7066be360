"""The cost of a method: time per training step, time per prediction, and memory for training.

Everything is measured on the CPU with random inputs, so no data files are needed. Loading and augmenting
data, validation and checkpoints are excluded: they are the same for every method.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from hff.batch import Batch
from hff.errors import UserError
from hff.evaluation.accuracy import evaluation_mode
from hff.methods import Method, Stage
from hff.randomness import generator
from hff.training.settings import Settings
from hff.training.trainer import Trainer

Task = Callable[[], None]
"""A piece of work that can be timed repeatedly."""

Name = TypeVar("Name", bound=Hashable)

PROCESS = Path("/proc/self")
RESET_PEAK = "5"
"""Writing this to clear_refs resets the peak resident size to the current resident size."""


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


def peak_memory(
    build: Callable[[], Method], settings: Settings, in_shape: tuple[int, ...], *, steps: int = 3
) -> int:
    """Bytes that training adds to a process at its peak, measured in a fresh process.

    The result is the difference in resident memory between a process that has only loaded torch and the peak
    during a few training steps. It includes parameters and buffers, gradients, optimizer state, activations
    stored for the backward pass, scratch memory of the kernels, and one batch. It does not include the data
    set or cached features. With several stages, the one that needs the most memory counts. Kernels that only
    this method loads and the overhead of the allocator are included, so differences of a few megabytes are
    not meaningful.

    Args:
        build: creates the untrained method; it is sent to the process, so it must be picklable, such as a
            `functools.partial` of a function in a module.
        settings: batch size and optimizer.
        in_shape: shape of one input.
        steps: number of steps of each stage; the optimizer state exists from the second step on.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        threads = torch.get_num_threads()
        return process.submit(_peak_of_steps, build, settings, in_shape, steps, threads).result()


def _peak_of_steps(
    build: Callable[[], Method], settings: Settings, in_shape: tuple[int, ...], steps: int, threads: int
) -> int:
    torch.set_num_threads(threads)
    _touch_torch(settings)
    idle = _resident()
    method = build()
    peak = 0
    for stage in trained_stages(method, settings):
        size = stage.batch_size or settings.batch_size
        batch = random_batch(in_shape, method.classes, size, views=method.views)
        train = training_steps(method, stage, settings, [batch] * steps)
        _reset_peak()
        train()
        peak = max(peak, _peak())
    return peak - idle


def _touch_torch(settings: Settings) -> None:
    """Makes torch load its kernels, about 90 MB, which would otherwise be counted for every method."""
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 2))
    loss = nn.functional.cross_entropy(network(torch.zeros(2, 1, 8, 8)), torch.tensor([0, 1]))
    loss.backward()
    for kind in (torch.optim.Adam, torch.optim.SGD):
        kind(network.parameters(), lr=settings.learning_rate, fused=True).step()


def _resident() -> int:
    """The current resident size in bytes, or its peak if the system does not report the current one."""
    return _status("VmRSS") or _largest_resident()


def _peak() -> int:
    """The peak resident size in bytes since `_reset_peak`, or since the start if that has no effect."""
    return _status("VmHWM") or _largest_resident()


def _reset_peak() -> None:
    try:
        (PROCESS / "clear_refs").write_text(RESET_PEAK)
    except OSError:
        return


def _status(field: str) -> int | None:
    """A size in bytes from the status file of the process; None if the file or the field is missing."""
    try:
        lines = (PROCESS / "status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith(f"{field}:")]
    return int(found[0][1]) * 1024 if found else None


def _largest_resident() -> int:
    try:
        import resource
    except ImportError:
        raise UserError("This system does not report the memory of a process.") from None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS reports bytes, other systems kilobytes.
    return largest if sys.platform == "darwin" else largest * 1024
