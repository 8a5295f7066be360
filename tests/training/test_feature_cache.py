"""The cache for the outputs of frozen blocks, on its own and in a training."""

import errno
import os
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hff.batch import Batch
from hff.data import Augmentation, DataSet
from hff.methods import Method, create_method
from hff.networks import create_network
from hff.training import Settings, fit
from hff.training.feature_cache import FeatureCache, on_disk

SETTINGS = Settings(epochs=5, batch_size=100)


class Sums:
    """Features are the sum of a sample and of its squares. Counts the samples it has received."""

    def __init__(self) -> None:
        self.count = 0

    def frozen_features(self, x: Tensor, depth: int) -> Tensor:
        self.count += len(x)
        return torch.stack([x.sum(1), x.square().sum(1)], 1)


def batch_of(*index: int) -> Batch:
    samples = torch.arange(20.0).view(10, 2)
    chosen = torch.tensor(index)
    return Batch(samples[chosen], chosen % 2, chosen, (0,))


def test_the_features_of_every_sample_are_computed_once() -> None:
    sums: Any = Sums()
    cache = FeatureCache(sums, 3, {"training": 10}, gigabytes=1)
    for _ in range(3):
        for index in ([0, 3, 5], [9, 1]):
            found = cache.attach(batch_of(*index), "training")
            assert found.depth == 3
            assert torch.equal(found.x, Sums().frozen_features(batch_of(*index).x, 3))
    assert sums.count == 5
    # If a batch contains a new sample, the features of the whole batch are computed.
    cache.attach(batch_of(0, 2), "training")
    assert sums.count == 7


def test_splits_are_cached_separately_and_others_are_not_changed() -> None:
    sums: Any = Sums()
    cache = FeatureCache(sums, 1, {"training": 10, "validation": 10}, gigabytes=1)
    cache.attach(batch_of(1), "training")
    cache.attach(batch_of(1), "validation")
    assert sums.count == 2
    assert cache.attach(batch_of(1), "test").depth == 0


def test_features_that_do_not_fit_are_computed_every_time() -> None:
    sums: Any = Sums()
    cache = FeatureCache(sums, 1, {"training": 10, "validation": 5}, gigabytes=(10 * 2 * 4 + 5) / 1e9)
    for _ in range(2):
        for split in ("training", "validation"):
            assert cache.attach(batch_of(1, 2), split).depth == 1
    # The training samples are computed once. There is no memory left for the validation samples.
    assert sums.count == 2 + 2 * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_features_that_do_not_fit_into_memory_are_kept_on_disk(tmp_path: Path, dtype: torch.dtype) -> None:
    sums: Any = Sums()
    item = torch.empty(0, dtype=dtype).element_size()
    samples = {"training": 10, "validation": 5}
    cache = FeatureCache(sums, 1, samples, gigabytes=10 * 2 * item / 1e9, folder=tmp_path)
    for _ in range(3):
        for split in samples:
            for index in ([1, 2], [4, 0]):
                batch = batch_of(*index)
                batch = replace(batch, x=batch.x.to(dtype))
                found = cache.attach(batch, split)
                assert torch.equal(found.x, Sums().frozen_features(batch.x, 1))
    assert sums.count == 2 * 4
    # The file has no name, so nothing is left behind by a process that is killed.
    assert list(tmp_path.iterdir()) == []


def mapped_files() -> int:
    """The number of deleted files that this process has mapped."""
    return Path("/proc/self/maps").read_text().count("(deleted)")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists the mapped files")
def test_the_file_is_gone_when_the_cache_is_gone(tmp_path: Path) -> None:
    before = mapped_files()
    sums: Any = Sums()
    cache = FeatureCache(sums, 1, {"training": 10}, gigabytes=0, folder=tmp_path)
    found = cache.attach(batch_of(1, 2), "training").x
    assert mapped_files() == before + 1
    del cache
    assert mapped_files() == before
    assert torch.equal(found, Sums().frozen_features(batch_of(1, 2).x, 1))


@pytest.mark.parametrize("reserves", [True, False])
def test_on_a_full_disk_features_are_computed_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reserves: bool
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if reserves:
        monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    else:
        monkeypatch.setattr(tempfile, "TemporaryFile", full)
    sums: Any = Sums()
    cache = FeatureCache(sums, 1, {"training": 10}, gigabytes=0, folder=tmp_path)
    with pytest.warns(UserWarning, match=r"has no room for 8e-08 GB of features \(No space left on device\)"):
        cache.attach(batch_of(1, 2), "training")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cache.attach(batch_of(1, 2), "training")
    assert torch.equal(found.x, Sums().frozen_features(batch_of(1, 2).x, 1))
    assert sums.count == 4


def test_a_system_that_cannot_reserve_space_writes_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    stored = on_disk(3 * 2**20 + 8, torch.float32, tmp_path)
    assert stored is not None
    assert stored.shape == (3 * 2**18 + 2,)
    assert not stored.any()
    stored += 1
    assert bool((stored == 1).all())


def trained(
    name: str, digits: DataSet, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], **changes: Any
) -> tuple[Method, int, Any]:
    """A trained method, the number of samples whose features were computed, and the accuracy."""
    table = create_network("cnn", digits.in_shape, 10, channels=(6, 8))
    method = create_method(name, table, 10, **options)
    count = [0]
    features = method.frozen_features

    def counted(x: Tensor, depth: int) -> Tensor:
        count[0] += len(x)
        return features(x, depth)

    monkeypatch.setattr(method, "frozen_features", counted)
    summary = fit(method, digits, replace(SETTINGS, **changes))
    return method, count[0], summary["validation_accuracy"]


HEBBIAN: tuple[str, dict[str, Any]] = ("softhebb", {"block_batch_size": 100, "block_epochs": 1})
GREEDY: tuple[str, dict[str, Any]] = ("hff", {"layer_order": "greedy"})


@pytest.mark.parametrize(("name", "options"), [HEBBIAN, GREEDY])
def test_training_with_and_without_a_cache_agrees(
    name: str, options: dict[str, Any], digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert digits.validation is not None
    samples = len(digits.train) + len(digits.validation)
    cached, count, accuracy = trained(name, digits, monkeypatch, options)
    assert count == samples
    again, _, other_accuracy = trained(name, digits, monkeypatch, options, cache_gigabytes=0.0)
    for a, b in zip(cached.parameters(), again.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-3)
    assert list(accuracy) == list(other_accuracy) == ["0", "1"]
    assert accuracy == pytest.approx(other_accuracy, abs=0.01)


@pytest.mark.parametrize(("name", "options"), [HEBBIAN, GREEDY])
def test_training_with_features_on_disk_is_bit_identical_to_memory(
    name: str,
    options: dict[str, Any],
    digits: DataSet,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert digits.validation is not None
    in_memory, _, accuracy = trained(name, digits, monkeypatch, options)
    disk: dict[str, Any] = {"cache_gigabytes": 0.0, "cache_location": "disk"}
    on_disk, count, same_accuracy = trained(name, digits, monkeypatch, options, **disk)
    assert count == len(digits.train) + len(digits.validation)
    state = on_disk.state_dict()
    assert all(torch.equal(tensor, state[key]) for key, tensor in in_memory.state_dict().items())
    assert accuracy == same_accuracy
    assert list(tmp_path.iterdir()) == []


def test_augmented_samples_are_not_cached(digits: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert digits.validation is not None
    varied = replace(digits, augmentation=Augmentation(crop=1))
    _, count, _ = trained(HEBBIAN[0], varied, monkeypatch, HEBBIAN[1])
    # The four epochs of the read-out compute the features of the training samples in every step.
    assert count == 4 * len(digits.train) + len(digits.validation)


def test_a_stage_of_one_epoch_does_not_cache(digits: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeatureCache, "_reserve", lambda *_: pytest.fail("memory was reserved"))
    trained(HEBBIAN[0], digits, monkeypatch, HEBBIAN[1], epochs=2)


def test_a_read_out_that_needs_frozen_layers_is_not_validated_from_the_cache(
    digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for read_out in ("mean", "best", 0):
        options = {**GREEDY[1], "read_out": read_out}
        method, count, _ = trained(GREEDY[0], digits, monkeypatch, options, epochs=2)
        assert count == len(digits.train)
        assert not method.reads_out_from(1)


@pytest.mark.parametrize(("name", "options", "depth"), [(*HEBBIAN, 2), (*GREEDY, 1)])
def test_scores_from_cached_features_equal_those_from_inputs(
    name: str, options: dict[str, Any], depth: int, digits: DataSet
) -> None:
    table = create_network("cnn", digits.in_shape, 10, channels=(6, 8))
    method = create_method(name, table, 10, **options).eval()
    x = torch.randn(5, *digits.in_shape)
    direct = dict(method.layer_scores(x))
    found = dict(method.layer_scores(method.frozen_features(x, depth), depth))
    assert list(found) == list(method.scored_layers(depth))
    for layer, scores in found.items():
        assert torch.allclose(scores, direct[layer], atol=1e-5)
