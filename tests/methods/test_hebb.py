"""Hebbian learning: cosines, clusters, principal components, initialization from samples."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.hebb import CHUNK, Hebb, lengths, random_samples
from hff.networks import Network, create_network


def hebb(inputs: int, units: int, **options: object) -> Hebb:
    return on(create_network("mlp", (inputs,), 3, widths=(units,)), **options)


def on(table: Network, **options: object) -> Hebb:
    method = create_method("hebb", table, 3, **options)
    assert isinstance(method, Hebb)
    return method


def batches(x: Tensor, size: int) -> list[Batch]:
    """Batches of these samples [N, ...], as in training."""
    parts = torch.arange(len(x)).split(size)
    return [Batch(x[i], torch.zeros_like(i), i, (0, 0, 0, step)) for step, i in enumerate(parts)]


def train(method: Hebb, steps: list[Batch]) -> None:
    stage = method.stages(2)[0]
    method.enter(stage)
    for batch in steps:
        for _ in method.update(batch, stage):
            for block in method.blocks:
                if (weight := block.affine.weight).grad is not None:
                    weight.data -= weight.grad
                    weight.grad = None


def test_the_winner_moves_toward_the_mean_direction_of_its_patches() -> None:
    method = hebb(2, 3, rate=0.5)
    weight = method.block(0).affine.weight
    with torch.no_grad():
        weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
    # The first wins (5, 0) and (4, 3), at cosines 1 and 0.8; the second (3, 4), at 0.8; the third nothing.
    x = torch.tensor([[5.0, 0.0], [3.0, 4.0], [4.0, 3.0]])
    change, watched = method.change(0, x, method.response(0, x))
    first = [0.5 * ((1.0 + 0.8) / 2 - 2.0), 0.5 * ((0.0 + 0.6) / 2 - 0.0)]
    second = [0.5 * (0.6 - 0.0), 0.5 * (0.8 - 1.0)]
    assert change.flatten().tolist() == pytest.approx([*first, *second, 0.0, 0.0], abs=1e-6)
    assert watched.item() == pytest.approx(1 - (1 + 0.8 + 0.8) / 3, abs=1e-6)


def test_features_are_powers_of_the_clipped_cosine() -> None:
    method = hebb(2, 2, power=2)
    with torch.no_grad():
        method.block(0).affine.weight.copy_(torch.tensor([[0.0, 7.0], [0.0, -1.0]]))
    assert method.features(0, torch.tensor([[3.0, 4.0], [0.0, 0.0]])).flatten().tolist() == pytest.approx(
        [0.64, 0.0, 0.0, 0.0]
    )


def test_a_convolution_responds_and_learns_like_a_linear_map_of_its_patches() -> None:
    method = on(create_network("cnn", (2, 6, 6), 3, channels=(5,), pool=1))
    flat = hebb(18, 5)
    with torch.no_grad():
        flat.block(0).affine.weight.copy_(method.block(0).affine.weight.flatten(1))
    x = torch.randn(3, 2, 6, 6)
    patches = F.unfold(x, 3, padding=1).transpose(1, 2).reshape(-1, 18)
    responses, expected = method.response(0, x), flat.response(0, patches)
    assert torch.allclose(responses.flatten(2).transpose(1, 2).reshape(-1, 5), expected, atol=1e-5)
    for rule in ("competitive", "oja", "sanger"):
        method.rule = flat.rule = rule
        change, watched = method.change(0, x, responses)
        same, too = flat.change(0, patches, expected)
        assert torch.allclose(change.flatten(1), same, atol=1e-5)
        assert torch.allclose(watched, too, atol=1e-6)


def test_competing_units_converge_to_the_means_of_clusters() -> None:
    centers = F.normalize(torch.randn(4, 10), dim=1)
    directions = F.normalize(centers.repeat(100, 1) + 0.05 * torch.randn(400, 10), dim=1)
    x = directions * (0.5 + torch.rand(400, 1))  # their lengths do not matter
    method = hebb(10, 4)
    with torch.no_grad():
        method.block(0).affine.weight.copy_(centers + 0.2 * torch.randn(4, 10))
    train(method, batches(x, 400) * 60)
    for cluster, weight in enumerate(method.block(0).affine.weight):
        assert torch.allclose(weight, directions[cluster::4].mean(0), atol=0.01)


def components(x: Tensor) -> Tensor:
    """The principal directions [D, D] of the directions of x [N, D], about the origin, strongest first."""
    x = F.normalize(x, dim=1)
    return torch.linalg.eigh(x.T @ x / len(x)).eigenvectors.T.flip(0)


def stretched() -> Tensor:
    return (
        torch.randn(500, 5) * torch.tensor([4.0, 2.0, 1.0, 0.3, 0.3]) @ torch.linalg.qr(torch.randn(5, 5)).Q
    )


def test_ojas_rule_finds_the_first_principal_component_at_unit_length() -> None:
    x = stretched()
    method = hebb(5, 3, rule="oja", rate=0.5)
    train(method, batches(x, 500) * 200)
    for weight in method.block(0).affine.weight:
        assert weight.norm().item() == pytest.approx(1, abs=1e-3)
        assert abs(weight @ components(x)[0]).item() == pytest.approx(1, abs=1e-3)


def test_sangers_rule_finds_one_component_after_the_other() -> None:
    x = stretched()
    method = hebb(5, 3, rule="sanger", rate=0.5)
    train(method, batches(x, 500) * 800)
    weight = method.block(0).affine.weight.detach()
    assert torch.allclose((weight @ components(x)[:3].T).abs(), torch.eye(3), atol=0.01)


@pytest.mark.parametrize(
    ("affine", "x"),
    [
        (nn.Linear(4, 2), torch.randn(3, 4)),
        (nn.Conv2d(2, 3, 3, stride=2, padding=1), torch.randn(3, 2, 7, 7)),
    ],
    ids=["linear", "conv"],
)
def test_lengths_are_those_of_the_patches(affine: nn.Linear | nn.Conv2d, x: Tensor) -> None:
    patches = x.unsqueeze(2) if x.dim() == 2 else F.unfold(x, 3, padding=1, stride=2)
    assert torch.allclose(lengths(affine, x).flatten(1), patches.norm(dim=1), atol=1e-5)
    assert bool((lengths(affine, torch.zeros_like(x)) > 0).all())


def test_units_start_at_the_directions_of_random_samples() -> None:
    x = torch.randn(40, 6)
    method = hebb(6, 12)
    method.prepare(method.stages(2)[0], lambda: batches(x, 7))
    matches = method.block(0).affine.weight @ F.normalize(x, dim=1).T
    assert torch.allclose(matches.max(1).values, torch.ones(12), atol=1e-5)
    assert len(set(matches.argmax(1).tolist())) == 12
    # In a sorted data set, the samples must not all be of the first classes.
    assert int(matches.argmax(1).max()) > 20
    assert all(share == 0 for share in method.diagnostics().values())


def test_units_of_a_convolution_start_at_patches_as_far_as_there_are_samples() -> None:
    x = torch.randn(5, 2, 8, 8)
    method = on(create_network("cnn", (2, 8, 8), 3, channels=(9, 3)))
    stage = method.stages(2)[0]
    before = method.block(0).affine.weight.detach().clone()
    method.prepare(stage, lambda: batches(x, 2))
    after = method.block(0).affine.weight.detach()
    assert torch.equal(after[5:], before[5:])
    h = x
    for layer, count in ((0, 5), (1, 3)):
        patches = F.unfold(h, 3, padding=1).transpose(1, 2).flatten(0, 1)
        starts = method.block(layer).affine.weight[:count].flatten(1)
        matches = starts @ F.normalize(patches, dim=1).T
        assert torch.allclose(matches.max(1).values, torch.ones(count), atol=1e-5)
        h = method.forward_block(layer, h).detach()


def test_units_behind_batch_norm_start_at_unit_length() -> None:
    method = on(create_network("mlp", (6,), 3, widths=(CHUNK + 1, CHUNK + 1), norm="batch", norm_at="output"))
    method.prepare(method.stages(2)[0], lambda: batches(torch.randn(40, 6), 8))
    lengths_of_units = method.block(1).affine.weight.norm(dim=1)
    assert torch.allclose(lengths_of_units, torch.ones(CHUNK + 1), atol=1e-5)


def test_samples_are_drawn_without_repetition_and_reproducibly() -> None:
    x = torch.arange(30.0).unsqueeze(1)
    samples, places = random_samples(lambda: batches(x, 4), 10)
    assert len(set(samples.flatten().tolist())) == len(samples) == len(places) == 10
    assert torch.equal(samples, random_samples(lambda: batches(x, 4), 10)[0])
    # In random order, because a layer with few units uses the first ones.
    assert samples.flatten().tolist() != sorted(samples.flatten().tolist())
    assert len(random_samples(lambda: batches(x, 4), 99)[0]) == 30


def test_units_that_never_win_are_reported() -> None:
    method = hebb(3, 4)
    with torch.no_grad():
        method.block(0).affine.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1, 0], [-1, 0, 0], [-1, -1, 0]]))
    train(method, batches(torch.rand(2000, 3), 4))
    assert method.diagnostics() == {"dead units of block 0": 0.5}


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match=r"rate is a share and must be above 0 and at most 1, not 1\.5"):
        hebb(3, 4, rate=1.5)
    with pytest.raises(UserError, match="power must be above 0, not 0"):
        hebb(3, 4, power=0.0)
