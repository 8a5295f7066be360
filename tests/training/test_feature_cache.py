"""The cache for the outputs of frozen blocks, on its own and in a training."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hff.batch import Batch
from hff.data import Augmentation, DataSet
from hff.methods import Method, create_method
from hff.networks import create_network
from hff.training import Settings, fit
from hff.training.feature_cache import FeatureCache

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
