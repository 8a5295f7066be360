"""The memory of training, each measured in a process of its own."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from hff.bench import memory
from hff.bench.memory import MemoryMeter, is_out_of_memory, peak_memory
from hff.errors import UserError
from hff.methods import Method, create_method
from hff.networks import create_network
from hff.training import Settings

SHAPE = (1, 28, 28)
SETTINGS = Settings(batch_size=8)


def build(*widths: int) -> Method:
    return create_method("backprop", create_network("mlp", SHAPE, 10, widths=widths), 10, seed=0)


def fail(error: Exception) -> Method:
    raise error


def be_killed() -> Method:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def kill_the_worker() -> Method:
    os.kill(os.getppid(), signal.SIGKILL)
    raise AssertionError


def test_memory_grows_with_the_parameters_and_their_adam_state() -> None:
    with MemoryMeter() as meter:
        narrow, wide = (meter.peak(partial(build, width, width), SETTINGS, SHAPE) for width in (16, 1500))
    parameters = sum(p.numel() for p in build(1500, 1500).parameters())
    size = 4 * parameters
    # The weights, their gradients and the two moments of Adam; the allocator may hold some of them twice.
    assert 3.5 * size < wide - narrow < 6 * size


def test_memory_is_measured_without_a_proc_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = memory._resident()
    monkeypatch.setattr(memory, "PROCESS", tmp_path / "missing")
    memory._reset_peak()
    assert memory._peak() == memory._resident() >= exact // 2


@pytest.mark.skipif(not memory.FORKS, reason="measurements are not forked on this system")
def test_a_fork_measures_the_same_as_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = partial(build, 1500, 1500)
    with MemoryMeter() as meter:
        forked, narrow = (meter.peak(each, SETTINGS, SHAPE) for each in (wide, partial(build, 16)))
    # An earlier measurement leaves nothing behind.
    assert narrow < forked / 4
    monkeypatch.setattr(memory, "FORKS", False)
    assert forked == pytest.approx(peak_memory(wide, SETTINGS, SHAPE), rel=0.1)


@pytest.mark.skipif(not memory.FORKS, reason="measurements are not forked on this system")
def test_after_a_measurement_that_dies_the_next_one_works() -> None:
    overflow = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes")
    reasons = {
        partial(fail, MemoryError()): "The measurement ran out of memory.",
        partial(fail, overflow): "The measurement ran out of memory.",
        partial(fail, UserError("It needs images.")): "It needs images.",
        partial(fail, ValueError("two\nlines")): r"The measurement failed \(ValueError: two lines\)\.",
        be_killed: "killed by the system, most likely because memory ran out",
        kill_the_worker: "The process that measures memory stopped unexpectedly",
    }
    with MemoryMeter() as meter:
        for broken, reason in reasons.items():
            with pytest.raises(UserError, match=reason):
                meter.peak(broken, SETTINGS, SHAPE)
        assert meter.peak(partial(build, 16), SETTINGS, SHAPE, steps=1) > 0


def test_errors_of_python_and_torch_that_say_that_memory_ran_out_are_recognized() -> None:
    for error in (
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    ):
        assert is_out_of_memory(error)
    for error in (OSError(28, "No space left on device"), RuntimeError("shapes differ"), ValueError()):
        assert not is_out_of_memory(error)
