"""How much damage the slow tests do, and of which kinds."""

import inspect
import math
from pathlib import Path
from types import ModuleType

import pytest
import test_slow_data_files
import test_slow_folder_files
import test_slow_run_files
from damage import damaged
from mutations import BYTES, TEXT, Mutation, mutate

MODULES = (test_slow_run_files, test_slow_folder_files, test_slow_data_files)
ENOUGH = 5000


def mutations_in(module: ModuleType) -> int:
    """The number of mutations of all tests of a module, each with all of its parameters."""
    total = 0
    for name, test in vars(module).items():
        marks = getattr(test, "pytestmark", []) if name.startswith("test_") else []
        counts = [mark.args[0] for mark in marks if mark.name == "mutations"]
        if counts:
            # The fixture `count` is the only source of the numbers that the tests use.
            assert "count" in inspect.signature(test).parameters
            cases = math.prod(len(mark.args[1]) for mark in marks if mark.name == "parametrize")
            total += counts[0] * cases
    return total


def test_the_fault_suite_has_enough_mutations() -> None:
    found = [mutations_in(module) for module in MODULES]
    assert min(found) > 0
    assert sum(found) >= ENOUGH


def test_a_file_is_damaged_as_often_as_asked_and_restored_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "other").write_bytes(b"other")
    found = []
    for _, read in damaged(tmp_path, "file", [lambda folder: (folder / "file").read_bytes()], 25, BYTES):
        found.append(read())
        (tmp_path / "other").write_bytes(b"changed by the reader")
        (tmp_path / "new").write_bytes(b"")
    assert len(found) == 25
    assert b"content" not in found
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "file": b"content",
        "other": b"other",
    }


@pytest.mark.parametrize("mutations", [BYTES, TEXT])
def test_mutations_depend_on_the_seed_only_and_always_change_something(
    mutations: tuple[Mutation, ...],
) -> None:
    content = b'{"name": "x", "size": [1, 2], "more": {"a": 1.5}}\nepochs: 3\nseed: 4\n' * 3
    damaged = [mutate(content, seed, mutations) for seed in range(500)]
    assert damaged == [mutate(content, seed, mutations) for seed in range(500)]
    assert all(changed != content for _, changed in damaged)
    assert {name for names, _ in damaged for name in names.split("+")} == {
        mutation.__name__ for mutation in mutations
    }
    assert len({changed for _, changed in damaged}) > 400
