"""What a method costs: the time of a training step and of a prediction, and the memory that training takes.

All of it is measured on the CPU and on random inputs, so no data files are needed. Reading and augmenting
data, validation and checkpoints are left out: they are the loop's, and the same for every method.
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
"""A piece of work to be timed, again and again."""

Name = TypeVar("Name", bound=Hashable)

PROCESS = Path("/proc/self")
RESET_PEAK = "5"
"""Written to clear_refs, it sets the peak of the resident size to what is resident now."""


def random_batch(in_shape: Sequence[int], classes: int, size: int, *, step: int = 0, views: int = 1) -> Batch:
    """A batch of the shape of the data: views [size, *in_shape], normal as preprocessed ones are about."""
    draw = generator("cost", step)
    x, *other_views = (torch.randn(size, *in_shape, generator=draw) for _ in range(views))
    y = torch.randint(classes, (size,), generator=draw)
    return Batch(x, y, torch.arange(size) + step * size, (0, 0, 0, step), tuple(other_views))


def training_steps(method: Method, stage: Stage, settings: Settings, batches: Sequence[Batch]) -> Task:
    """A task that trains a stage by one step on each batch, all that follows a step included.

    The task changes the method. What the stage sets from the data before it begins is done here, untimed.
    """
    trainer = Trainer(method, settings, stage=stage)
    trainer.prepare(batches)

    def train() -> None:
        for batch in batches:
            trainer.step(batch)

    return train


def predictions(method: Method, batches: Sequence[Tensor]) -> Task:
    """A task that predicts every batch [B, ...] once, in evaluation mode and without gradients."""

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
    """The seconds of each task in each round; in a round all tasks run in turn.

    Load that comes and goes on the machine then falls on all tasks alike, where one task after the other
    would have each measured in another weather. The first `warm_up` rounds, in which memory is claimed and
    kernels are chosen, are not counted.
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
    """The stages of a training that last at least an epoch."""
    return [stage for stage in method.stages(settings.epochs) if stage.epochs > 0]


def step_seconds(stages: Sequence[Stage], seconds: Sequence[float]) -> float:
    """The mean seconds of a step over a training, from those of each stage: stages weigh by their epochs."""
    shares = [stage.epochs / sum(each.epochs for each in stages) for stage in stages]
    return sum(share * each for share, each in zip(shares, seconds, strict=True))


def epoch_seconds(
    stages: Sequence[Stage], seconds: Sequence[float], settings: Settings, images: int
) -> float:
    """The mean seconds of an epoch of so many images, from the seconds of a step of each stage.

    Stages weigh by their epochs, and each has its own number of steps where it has its own batch size. A last
    batch that is not full counts by its share.
    """
    steps = [images / (stage.batch_size or settings.batch_size) for stage in stages]
    return step_seconds(stages, [count * each for count, each in zip(steps, seconds, strict=True)])


def peak_memory(
    build: Callable[[], Method], settings: Settings, in_shape: tuple[int, ...], *, steps: int = 3
) -> int:
    """Bytes that training adds to a process at its peak, measured in a fresh process.

    Counted is all that becomes resident between a process that has used torch but holds nothing and the peak
    of a few training steps: parameters and buffers, gradients, the optimiser's state, the activities that are
    kept for the backward pass, the scratch memory of the kernels, and one batch. The data set is not, nor is
    what the loop keeps of it while only read-outs learn. Of
    several stages the most demanding one counts. Kernels that only this method loads and the slack of the
    allocator are in it too, so differences of a few megabytes say nothing.

    Args:
        build: makes the untrained method; it is sent to the process, so it must be picklable, such as a
            `functools.partial` of a function in a module.
        settings: batch size and optimiser.
        in_shape: the shape of one input.
        steps: steps of each stage; the optimiser's state exists from the second one on.
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
    """Makes torch load its kernels: about 90 MB that every method would be charged for all the same."""
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 2))
    loss = nn.functional.cross_entropy(network(torch.zeros(2, 1, 8, 8)), torch.tensor([0, 1]))
    loss.backward()
    for kind in (torch.optim.Adam, torch.optim.SGD):
        kind(network.parameters(), lr=settings.learning_rate, fused=True).step()


def _resident() -> int:
    """Bytes resident now; where the system does not tell, the largest they have been."""
    return _status("VmRSS") or _largest_resident()


def _peak() -> int:
    """The largest number of resident bytes since `_reset_peak`, or since the start where it has no effect."""
    return _status("VmHWM") or _largest_resident()


def _reset_peak() -> None:
    try:
        (PROCESS / "clear_refs").write_text(RESET_PEAK)
    except OSError:
        return


def _status(field: str) -> int | None:
    """A size in bytes from the process's status file; None where there is none."""
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
        raise UserError("This system does not tell how much memory a process has taken.") from None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, all others in kilobytes.
    return largest if sys.platform == "darwin" else largest * 1024
