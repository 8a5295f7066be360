"""Freed memory stays in the process unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from hff.training.allocator import keep_freed_memory
torch.set_num_threads(1)
print(keep_freed_memory())
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3): torch.ones(4_000_000)
before = faults()
for _ in range(10): torch.ones(4_000_000)
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only the allocator of glibc is set up")
@pytest.mark.parametrize(
    ("variables", "kept"),
    [({}, True), ({"HFF_KEEP_MEMORY": "0"}, False), ({"MALLOC_ARENA_MAX": "4"}, False)],
    ids=["default", "turned off", "set up by the user"],
)
def test_tensors_of_16_mb_cause_no_page_faults(variables: dict[str, str], kept: bool) -> None:
    own = ("MALLOC_", "HFF_KEEP", "GLIBC_", "LD_PRELOAD")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=inherited | variables, capture_output=True, text=True, check=True
    )
    answer, faults = done.stdout.split()
    assert answer == str(kept)
    if kept:
        assert int(faults) < 100
