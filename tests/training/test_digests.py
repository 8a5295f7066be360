"""What blocks at rest make of a sample is computed once, where it is always the same and fits."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hff.batch import Batch
from hff.data import Augmentation, DataSet
from hff.methods import create_method
from hff.methods.families.hebbian import HebbianMethod
from hff.networks import create_network
from hff.training import Settings, fit
from hff.training.digests import Digests

SETTINGS = Settings(epochs=5, batch_size=100)


class Sums:
    """Digests a sample into its sum and its square, and counts how many samples it was given."""

    def __init__(self) -> None:
        self.given = 0

    def digest(self, x: Tensor) -> Tensor:
        self.given += len(x)
        return torch.stack([x.sum(1), x.square().sum(1)], 1)


def batch_of(*index: int) -> Batch:
    samples = torch.arange(20.0).view(10, 2)
    chosen = torch.tensor(index)
    return Batch(samples[chosen], chosen % 2, chosen, (0,))


def test_every_sample_is_digested_once() -> None:
    sums: Any = Sums()
    digests = Digests(sums, {"training": 10}, gigabytes=1)
    for _ in range(3):
        for index in ([0, 3, 5], [9, 1]):
            found = digests.attach(batch_of(*index), "training")
            assert found.digest is not None
            assert torch.equal(found.digest, Sums().digest(batch_of(*index).x))
    assert sums.given == 5
    # In a batch that is new in part, all are digested together.
    digests.attach(batch_of(0, 2), "training")
    assert sums.given == 7


def test_splits_are_told_apart_and_unknown_ones_left_alone() -> None:
    sums: Any = Sums()
    digests = Digests(sums, {"training": 10, "validation": 10}, gigabytes=1)
    digests.attach(batch_of(1), "training")
    digests.attach(batch_of(1), "validation")
    assert sums.given == 2
    assert digests.attach(batch_of(1), "test").digest is None


def test_what_does_not_fit_is_digested_every_time() -> None:
    sums: Any = Sums()
    digests = Digests(sums, {"training": 10, "validation": 5}, gigabytes=(10 * 2 * 4 + 5) / 1e9)
    for _ in range(2):
        for split in ("training", "validation"):
            assert digests.attach(batch_of(1, 2), split).digest is not None
    # Once for the training samples; the validation samples have no room left.
    assert sums.given == 2 + 2 * 2


def trained(
    digits: DataSet, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> tuple[HebbianMethod, int, Any]:
    """A method, how many samples were digested while it learned, and its accuracy on validation."""
    given = [0]
    digest = HebbianMethod.digest

    def counted(self: HebbianMethod, x: Tensor) -> Tensor:
        given[0] += len(x)
        return digest(self, x)

    monkeypatch.setattr(HebbianMethod, "digest", counted)
    table = create_network("cnn", digits.in_shape, 10, channels=(6, 8))
    method = create_method("softhebb", table, 10, block_batch_size=100, block_epochs=1)
    summary = fit(method, digits, replace(SETTINGS, **changes))
    monkeypatch.undo()
    assert isinstance(method, HebbianMethod)
    return method, given[0], summary["validation_accuracy"]


def test_the_loop_keeps_them_while_a_stage_lasts(digits: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert digits.validation is not None
    training, validation = len(digits.train), len(digits.validation)
    kept, given, accuracy = trained(digits, monkeypatch)
    assert given == training + validation
    anew, given, other_accuracy = trained(digits, monkeypatch, keep_gigabytes=0.0)
    assert given == 4 * (training + validation)
    for a, b in zip(kept.parameters(), anew.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert accuracy == pytest.approx(other_accuracy, abs=0.01)


def test_augmented_samples_are_not_kept(digits: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert digits.validation is not None
    varied = replace(digits, augmentation=Augmentation(crop=1))
    _, given, _ = trained(varied, monkeypatch)
    assert given == 4 * len(digits.train) + len(digits.validation)


def test_a_stage_of_one_epoch_keeps_nothing(digits: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Digests, "_reserve", lambda *_: pytest.fail("memory was taken"))
    trained(digits, monkeypatch, epochs=2)


def test_scores_of_digests_are_those_of_the_samples(digits: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    method, _, _ = trained(digits, monkeypatch)
    x = torch.randn(5, *digits.in_shape)
    direct = dict(method.layer_scores(x))
    for layer, scores in method.digest_scores(method.digest(x)):
        assert torch.allclose(scores, direct[layer], atol=1e-5)
