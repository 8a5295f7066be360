"""Checkpoints: their checksum, their state, and the order in which they are written."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hff.data import load_data
from hff.errors import UserError
from hff.experiment import Experiment
from hff.run_group import RunGroup
from hff.training import Run, checkpoint

TENSORS = {
    "method/weight": torch.arange(12.0).view(3, 4),
    "method/half": torch.ones(5, dtype=torch.bfloat16),
    "method/flag": torch.tensor(True),
    "method/none": torch.zeros(0),
    "optimizer/step": torch.tensor(3.0),
}
STATE = {"format": 1, "position": {"stage": 0, "epoch": 2, "records": 2, "seconds": 1.5}, "seed": 7}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save(path, TENSORS, STATE)
    return path


def test_a_checkpoint_returns_what_was_saved(path: Path) -> None:
    tensors, state = checkpoint.load(path)
    assert state == STATE == checkpoint.read_state(path)
    assert {name: t.dtype for name, t in tensors.items()} == {name: t.dtype for name, t in TENSORS.items()}
    assert all(torch.equal(tensors[name], t) for name, t in TENSORS.items())


def test_a_damaged_checkpoint_is_refused_in_one_sentence_or_has_the_same_content(path: Path) -> None:
    whole, draw = path.read_bytes(), np.random.default_rng(0)
    messages = []
    for _ in range(400):
        content = bytearray(whole)
        kind = draw.integers(3)
        place = int(draw.integers(len(content)))
        if kind == 0:
            content[place] ^= 1 << int(draw.integers(8))
        elif kind == 1:
            content[place : place + 8] = draw.bytes(8)
        else:
            del content[place:]
        path.write_bytes(content)
        try:
            tensors, state = checkpoint.load(path)
        except UserError as error:
            messages.append(str(error))
        else:
            assert state == STATE
            assert all(torch.equal(tensors[name], t) for name, t in TENSORS.items())
            assert set(tensors) == set(TENSORS)
    assert len(messages) > 350
    assert all("is damaged" in message and "\n" not in message for message in messages)


def test_the_position_is_verified_without_the_tensors(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'epoch\\": 2', b'epoch\\": 9'))
    with pytest.raises(UserError, match="checksum does not match"):
        checkpoint.read_state(path)


def test_a_checkpoint_without_a_checksum_still_opens(path: Path) -> None:
    save_file(TENSORS, path, {"state": json.dumps(STATE)})
    tensors, state = checkpoint.load(path)
    assert state == STATE
    assert torch.equal(tensors["method/weight"], TENSORS["method/weight"])


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({}, "position"),
        ({"position": 3}, "position"),
        ({"position": {"epoch": -1}}, "position.epoch"),
        ({"position": {"epoch": 1.5}}, "position.epoch"),
        ({"position": {"epoch": True}}, "position.epoch"),
        ({"position": {"seconds": float("nan")}}, "position.seconds"),
        ({"position": {"epcoh": 1}}, "epcoh"),
        ({"position": {}, "seed": "x"}, "seed"),
        ({"position": {}, "format": 9}, "format"),
    ],
)
def test_a_state_with_a_wrong_value_is_refused_by_name(state: Any, place: str, path: Path) -> None:
    checkpoint.save(path, TENSORS, state)
    run = Run(path.parent)
    for read in (run.load, run.position):
        with pytest.raises(UserError, match=f"is damaged: .*'{place}'"):
            read()


def test_a_state_that_is_nested_too_deeply_is_refused(path: Path) -> None:
    save_file(TENSORS, path, {"state": "[" * 100_000})
    with pytest.raises(UserError, match="nested too deeply"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: checkpoint.save(path, TENSORS, STATE),
        lambda path: checkpoint.write_atomically(path, "text"),
    ],
)
def test_the_file_is_synced_before_the_rename_and_the_folder_after_it(
    write: Callable[[Path], None], tmp_path: Path, calls: list[str]
) -> None:
    write(tmp_path / "file")
    assert calls == ["sync file.partial", "rename file.partial", f"sync {tmp_path.name}"]


@pytest.mark.parametrize(
    "create",
    [
        lambda folder: Run(folder).lock.__enter__(),
        lambda folder: Run(folder).save_failure("It failed."),
        lambda folder: Run(folder).add_cost({}),
        lambda folder: Run.create(folder, {}, load_data("digits")),
        lambda folder: RunGroup.create(folder, Experiment.from_mapping({}), [0]),
    ],
)
def test_the_parent_of_a_new_folder_is_synced_after_it_is_created(
    create: Callable[[Path], None], tmp_path: Path, calls: list[str]
) -> None:
    create(tmp_path / "runs" / "new")
    assert calls[:4] == ["create runs", f"sync {tmp_path.name}", "create new", "sync runs"]
    assert not any(call.startswith("create") for call in calls[4:])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is created, synced and renamed, in order."""
    calls: list[str] = []
    sync, replace, mkdir = os.fsync, Path.replace, os.mkdir

    def fsync(handle: int) -> None:
        calls.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        sync(handle)

    def rename(self: Path, target: Path) -> Path:
        calls.append(f"rename {self.name}")
        return replace(self, target)

    def create(path: Path, *options: Any) -> None:
        mkdir(path, *options)
        calls.append(f"create {Path(path).name}")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", rename)
    monkeypatch.setattr(os, "mkdir", create)
    return calls


def test_a_full_disk_is_an_error_of_the_system_and_keeps_the_last_checkpoint(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tensors: object, partial: Path, metadata: object) -> None:
        partial.write_bytes(b"")
        raise checkpoint.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        checkpoint.save(path, {}, {})
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(path))
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert checkpoint.load(path)[1] == STATE
