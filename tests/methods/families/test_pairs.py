"""Predictions that try every label, shared by all methods that write labels into inputs."""

import pytest
import torch
from torch import Tensor

from hff.batch import Batch
from hff.methods import create_method
from hff.methods.families import pairs as module
from hff.methods.families.pairs import PairMethod
from hff.modules.labels import AdditiveEncoding, Overlay
from hff.networks import create_network


def by_hand(method: PairMethod, x: Tensor) -> list[Tensor]:
    """The goodness [B, C] of every layer, one class after the other."""
    columns: list[list[Tensor]] = [[] for _ in method.blocks]
    for label in range(method.classes):
        h = method.encoding(x, torch.full((len(x),), label))
        for layer in range(len(method.blocks)):
            h = method.features(layer, h)
            columns[layer].append(method.goodness(layer, h))
    return [torch.stack(column, 1) for column in columns]


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mlp", (1, 5, 5), {"widths": (12, 9)}),
        ("mlp", (7,), {"widths": (12, 9)}),
        ("cnn", (2, 8, 8), {"channels": (4, 6)}),
    ],
)
def test_the_shared_first_product_gives_the_same_scores(
    name: str, shape: tuple[int, ...], options: dict[str, object], norm: str
) -> None:
    method = create_method("ff", create_network(name, shape, 4, norm=norm, **options), 4)
    assert isinstance(method, PairMethod)
    for _ in range(3):  # gives batch norms statistics that are not 0 and 1
        method.train()(torch.randn(16, *shape) + 0.5)
    method.eval()
    x = torch.randn(6, *shape)
    for (_, fast), slow in zip(method.layer_scores(x), by_hand(method, x), strict=True):
        assert torch.allclose(fast, slow, rtol=1e-4, atol=1e-5)


def test_the_first_product_is_shared() -> None:
    method = create_method("ff", create_network("mlp", (1, 6, 6), 10, widths=(8, 8)), 10).eval()
    rows: list[int] = []
    affine = method.block(0).affine
    affine.register_forward_hook(lambda module, given, result: rows.append(len(given[0])))
    list(method.layer_scores(torch.randn(50, 1, 6, 6)))
    # The samples, the patterns of ten classes and the offset, but not fifty times ten inputs.
    assert sorted(rows) == [1, 10, 50]


def test_large_batches_are_scored_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    method = create_method("ff", create_network("mlp", (1, 6, 6), 4, widths=(16, 8)), 4).eval()
    x = torch.randn(11, 1, 6, 6)
    whole = dict(method.layer_scores(x))
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 4 * 16 * 3)
    rows: list[int] = []
    method.block(1).affine.register_forward_hook(lambda module, given, result: rows.append(len(result)))
    parts = dict(method.layer_scores(x))
    assert rows == [4 * 3, 4 * 3, 4 * 3, 4 * 2]
    assert all(torch.allclose(whole[layer], parts[layer], atol=1e-5) for layer in whole)


def test_a_pair_is_one_input_with_its_true_and_a_wrong_label() -> None:
    method = create_method("ff", create_network("mlp", (1, 6, 6), 4, widths=(8,)), 4, label_intensity=2.0)
    assert isinstance(method, PairMethod)
    assert isinstance(method.encoding, Overlay)
    batch = Batch(torch.randn(64, 1, 6, 6), torch.randint(0, 4, (64,)), torch.arange(64), (0, 0, 0, 0))
    h = method.training_inputs(batch)
    positive, negative = h.flatten(1).chunk(2)
    assert torch.equal(positive[:, 4:], negative[:, 4:])
    assert torch.equal(positive[:, :4], 2.0 * torch.eye(4)[batch.y])
    assert (negative[:, :4].argmax(1) != batch.y).all()
    later = Batch(batch.x, batch.y, batch.index, (0, 0, 0, 1))
    assert not torch.equal(method.negatives(batch), method.negatives(later))


def test_inverse_power_normalizes_labeled_inputs_to_unit_power() -> None:
    encoding = Overlay((1, 4, 4), 3, 5.0)
    assert isinstance(encoding, AdditiveEncoding)
    x = torch.randn(5, 1, 4, 4)
    factors = module._inverse_power(encoding.base(x).flatten(1), encoding.patterns().flatten(1))
    for label in range(3):
        written = encoding(x, torch.full((5,), label)).flatten(1)
        assert torch.allclose(factors[:, label], 1 / written.square().mean(1).sqrt(), rtol=1e-5)
