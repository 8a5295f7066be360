"""The memory that training adds to a process, measured on the CPU with random inputs."""

import ctypes
import errno
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
from array import array
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import nn

from hff.bench.cost import random_batch, trained_stages, training_steps
from hff.errors import UserError
from hff.methods import Method
from hff.training.settings import Settings

FORKS = sys.platform == "linux"
"""Whether measurements are forked. Elsewhere, forking a process that has loaded torch is not safe."""
STEPS = 3
"""Measured steps of each stage. The optimizer state exists from the second step on."""
PROCESS = Path("/proc/self")
RESET_PEAK = "5"
"""Writing this to clear_refs resets the peak resident size to the current resident size."""
ALLOCATION_ERRORS = (
    "can't allocate memory",
    "out of memory",
    "not enough memory",
    "Storage size calculation overflow",
)
"""Parts of the messages of torch's RuntimeErrors if an allocation fails."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python or torch says that an allocation failed."""
    if isinstance(error, RuntimeError):
        return any(words in str(error) for words in ALLOCATION_ERRORS)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


@dataclass(frozen=True)
class _Task:
    """What is sent to the process that measures."""

    build: Callable[[], Method]
    settings: Settings
    in_shape: tuple[int, ...]
    steps: int
    threads: int


class MemoryMeter:
    """Measures the memory of trainings, each in a new process. Used in a `with` statement.

    Loading torch takes seconds, so it is loaded once, in a process that is forked for each measurement.
    Systems on which this is not safe start a process for each measurement instead.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()

    def peak(
        self,
        build: Callable[[], Method],
        settings: Settings,
        in_shape: tuple[int, ...],
        *,
        steps: int = STEPS,
    ) -> int:
        """Bytes that training adds to a process at its peak. Raises a UserError if it cannot be measured.

        The result is the difference in resident memory between a process that has only loaded torch and the
        peak during a few training steps. It includes parameters and buffers, gradients, optimizer state,
        activations stored for the backward pass, scratch memory of the kernels, and one batch. It does not
        include the data set or cached features. With several stages, the one that needs the most memory
        counts. Kernels that only this method loads and the overhead of the allocator are included, so
        differences of a few megabytes are not meaningful.

        Args:
            build: creates the untrained method; it is sent to the process, so it must be picklable, such as a
                `functools.partial` of a function in a module.
            settings: batch size and optimizer.
            in_shape: shape of one input.
            steps: number of steps of each stage; the optimizer state exists from the second step on.
        """
        task = _Task(build, settings, in_shape, steps, torch.get_num_threads())
        try:
            found = self._worker().submit(_in_a_fork if FORKS else _measure, task).result()
        except BrokenProcessPool:
            self._stop()
            raise UserError("The process that measures memory stopped unexpectedly.") from None
        finally:
            if not FORKS:
                self._stop()
        if isinstance(found, str):
            raise UserError(found)
        return found

    def _worker(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_load_torch)
        return self._pool

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def peak_memory(
    build: Callable[[], Method], settings: Settings, in_shape: tuple[int, ...], *, steps: int = STEPS
) -> int:
    """Bytes that training adds to a process at its peak: one measurement of a `MemoryMeter`."""
    with MemoryMeter() as meter:
        return meter.peak(build, settings, in_shape, steps=steps)


def _load_torch() -> None:
    """Loads the modules that torch loads on first use, without starting threads: they cannot be forked."""
    # Ctrl-C also reaches this process. The process that started it handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _touch_torch()


def _in_a_fork(task: _Task) -> int | str:
    """Measures in a fork of this process. The result is the peak in bytes, or why there is none."""
    pages = _file_pages()
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        # os._exit skips the clean-up of the process that was forked, which is not the child's.
        try:
            os.close(receiver)
            for page in pages:
                ctypes.string_at(page, 1)
            with os.fdopen(sender, "wb") as pipe:
                pickle.dump(_measure(task), pipe)
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        answer = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGKILL:
        return "The measurement was killed by the system, most likely because memory ran out."
    if not answer:
        return f"The measurement stopped unexpectedly (exit code {status})."
    found: int | str = pickle.loads(answer)
    return found


def _file_pages() -> list[int]:
    """Addresses of the pages of files, such as libraries, that this process has in memory.

    A fork starts without them, and reads them again when it needs them. A fork that touches them first
    starts from the same memory as a new process, and the libraries are not counted for the method.
    """
    pages: list[int] = []
    try:
        with (PROCESS / "maps").open() as maps, (PROCESS / "pagemap").open("rb") as pagemap:
            for addresses, access, _, _, inode, *_ in map(str.split, maps):
                if access[0] != "r" or inode == "0":
                    continue
                start, end = (int(address, 16) for address in addresses.split("-"))
                pagemap.seek(start // mmap.PAGESIZE * 8)
                # The highest bit of the 64 bits of a page says that it is in memory.
                entries = array("q", pagemap.read((end - start) // mmap.PAGESIZE * 8))
                pages += [start + number * mmap.PAGESIZE for number, bits in enumerate(entries) if bits < 0]
    except OSError:
        return []
    return pages


def _measure(task: _Task) -> int | str:
    """The peak in bytes, or why there is none."""
    try:
        return _peak_of_steps(task)
    except UserError as error:
        return str(error)
    except Exception as error:
        if is_out_of_memory(error):
            return "The measurement ran out of memory."
        return f"The measurement failed ({type(error).__name__}: {' '.join(str(error).split())})."


def _peak_of_steps(task: _Task) -> int:
    torch.set_num_threads(task.threads)
    _touch_torch()
    idle = _resident()
    method = task.build()
    peak = 0
    for stage in trained_stages(method, task.settings):
        size = stage.batch_size or task.settings.batch_size
        batch = random_batch(task.in_shape, method.classes, size, views=method.views)
        train = training_steps(method, stage, task.settings, [batch] * task.steps)
        _reset_peak()
        train()
        peak = max(peak, _peak())
    return peak - idle


def _touch_torch() -> None:
    """Makes torch load its kernels, about 90 MB, which would otherwise be counted for every method."""
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 2))
    loss = nn.functional.cross_entropy(network(torch.zeros(2, 1, 8, 8)), torch.tensor([0, 1]))
    loss.backward()
    for kind in (torch.optim.Adam, torch.optim.SGD):
        kind(network.parameters(), lr=1e-3, fused=True).step()


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
