"""NoProp-DT: noise, denoiser and losses against their equations."""

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.method import group_layer
from hff.methods.noprop_dt import Denoiser, NoProp, denoising_weights, signal_shares
from hff.networks import create_network

CLASSES = 4


def noprop(shape: tuple[int, ...] = (5,), **options: Any) -> NoProp:
    net = create_network("mlp", shape, CLASSES, widths=(8,))
    method = create_method("noprop_dt", net, CLASSES, **{"width": 12, "steps": 3, **options})
    assert isinstance(method, NoProp)
    return method


def batch(size: int = 6, step: int = 0, shape: tuple[int, ...] = (5,)) -> Batch:
    x = torch.randn(size, *shape, generator=torch.Generator().manual_seed(step))
    return Batch(x, torch.arange(size) % CLASSES, torch.arange(size), (0, 0, 0, step))


def test_the_share_of_the_signal_grows_from_zero_to_the_cap() -> None:
    shares = signal_shares(2, 3.0)
    # SNR 3 is a share of 3/4, the square of sin 60 degrees; half the way is 30 degrees.
    assert shares == pytest.approx([0, 0.25, 0.75])
    ten = signal_shares(10, 100.0)
    assert ten[0] == 0
    assert ten[10] / (1 - ten[10]) == pytest.approx(100)
    assert all(a < b for a, b in itertools.pairwise(ten))
    # Every step adds signal, even if there are many: otherwise blocks would have no loss.
    many = signal_shares(100, 100.0)
    assert all(a < b for a, b in itertools.pairwise(many))


def test_denoising_weights_by_hand() -> None:
    # Nothing of pure noise is kept: the result is the guess plus noise.
    assert denoising_weights(0.0, 0.36) == pytest.approx((0.6, 0.0, 0.8))
    # before 1/4, after 3/4: kept 1/3, fresh (2/3) / (3/4) = 8/9.
    toward, keep, noise = denoising_weights(0.25, 0.75)
    assert toward == pytest.approx(math.sqrt(0.75) * 8 / 9)
    assert keep == pytest.approx(math.sqrt(1 / 3) / 3)
    assert noise == pytest.approx(math.sqrt(2 / 9))


def test_denoising_with_the_true_embedding_keeps_the_distribution() -> None:
    shares = signal_shares(10, 100.0)
    mean, variance = 0.0, 1.0
    for before, after in itertools.pairwise(shares):
        toward, keep, noise = denoising_weights(before, after)
        mean, variance = toward + keep * mean, keep**2 * variance + noise**2
        assert mean == pytest.approx(math.sqrt(after))
        assert variance == pytest.approx(1 - after)


def test_mean_and_covariance_of_the_noise() -> None:
    method = noprop(embedding="learned", embedding_dim=3)
    many = Batch(torch.zeros(20000, 5), torch.full((20000,), 2), torch.arange(20000), (0, 0, 0, 0))
    z = method.noisy(2, many, 0).detach()
    share = method.signal[2]
    assert torch.allclose(z.mean(0), math.sqrt(share) * method.embedding[2], atol=0.03)
    assert torch.allclose(torch.cov(z.T), (1 - share) * torch.eye(3), atol=0.03)
    # Each block has its own noise; the noise of a sample does not depend on the rest of the batch.
    assert not torch.equal(z, method.noisy(2, many, 1))
    part = Batch(many.x[5:9], many.y[5:9], many.index[5:9], many.key)
    assert torch.equal(z[5:9], method.noisy(2, part, 0))


@pytest.mark.parametrize("block", [0, 2])
def test_the_loss_of_a_block_written_out(block: int) -> None:
    method = noprop(embedding="learned", embedding_dim=3, eta=0.2, snr_cap=30).eval()
    one = batch()
    z = method.noisy(block, one, block)
    denoiser = method.blocks[block]
    image, label = denoiser.image(one.x), denoiser.label(z)
    label = label + denoiser.residual(label)
    p = torch.softmax(denoiser.fusion(torch.cat([image, label], 1)), 1)
    before, after = (method.signal[t] / (1 - method.signal[t]) for t in (block, block + 1))
    squares = ((p @ method.embedding - method.embedding[one.y]) ** 2).sum(1)
    expected = 3 / 2 * 0.2 * (after - before) * squares.mean()
    assert torch.allclose(method.denoising_loss(block, one), expected)


def test_shared_parameters_learn_with_each_block() -> None:
    method = noprop(embedding="learned").eval()
    stage, one = method.stages(1)[0], batch()
    blocks = []
    for group, _ in method.update(one, stage):
        if group == "embedding":
            block = blocks[-1]
            losses = method.denoising_loss(block, one)
            losses = losses + F.cross_entropy(method.out(method.noisy(3, one, block)), one.y)
            shared = [method.embedding, *method.out.parameters()]
            for mine, expected in zip(shared, torch.autograd.grad(losses, shared), strict=True):
                assert torch.allclose(mine.grad, expected, atol=1e-5)
        else:
            layer = group_layer(group)
            assert layer is not None
            blocks.append(layer)
            # Only this block and shared parameters have gradients.
            assert all(p.grad is not None for p in method.blocks[layer].parameters())
            others = [other for n, other in enumerate(method.blocks) if n != layer]
            assert all(p.grad is None for other in others for p in other.parameters())
            continue
        method.zero_grad(set_to_none=True)
    assert blocks == [0, 1, 2]


def test_gradients_of_parts_of_a_batch_add_up() -> None:
    # In evaluation mode, because batch norm relates the samples of a batch to each other.
    method = noprop(embedding="learned").eval()
    stage, one = method.stages(1)[0], batch(8)

    def gradients(*parts: slice) -> list[torch.Tensor]:
        method.zero_grad(set_to_none=True)
        for part in parts:
            list(method.update(Batch(one.x[part], one.y[part], one.index[part], one.key), stage))
        return [p.grad / len(parts) for p in method.parameters()]

    for a, b in zip(gradients(slice(8)), gradients(slice(4), slice(4, 8)), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_the_random_blocks_depend_on_the_key_of_the_batch() -> None:
    method = noprop(steps=6, blocks_per_step=2)
    stage = method.stages(1)[0]
    seen: list[list[str]] = []
    for step in range(20):
        groups = [[group for group, _ in method.update(batch(step=step), stage)] for _ in range(2)]
        assert groups[0] == groups[1]
        assert groups[0][1::2] == ["embedding", "embedding"]
        seen.append(groups[0][::2])
    assert all(len(set(blocks)) == 2 for blocks in seen)
    assert {block for blocks in seen for block in blocks} == {f"block{n}" for n in range(6)}


def test_a_prediction_written_out() -> None:
    method = noprop(noise_samples=2).eval()
    x = torch.randn(3, 5)
    scores = []
    for draws in method.noise:
        z = draws[0].expand(3, -1)
        for t, block in enumerate(method.blocks):
            u = torch.softmax(block(x, z), 1) @ method.embedding
            a, b, s = denoising_weights(method.signal[t], method.signal[t + 1])
            z = a * u + b * z + s * draws[t + 1]
        scores.append(method.out(z))
    assert torch.allclose(method(x), torch.stack(scores).mean(0), atol=1e-5)


@pytest.mark.parametrize("noise_samples", [0, 1, 3])
def test_predictions_depend_only_on_the_sample_and_the_state(noise_samples: int) -> None:
    method = noprop(noise_samples=noise_samples).eval()
    x = torch.randn(7, 5)
    assert torch.allclose(method(x)[4:5], method(x[4:5]), atol=1e-5)
    assert [layer for layer, _ in method.layer_scores(x)] == [0, 1, 2]
    assert method.passes == 3
    # The noise is part of the state: a copy predicts the same.
    other = noprop(noise_samples=noise_samples, embedding="one_hot").eval()
    other.load_state_dict(method.state_dict())
    assert torch.equal(other(x), method(x))
    assert bool(method.noise.any()) == (noise_samples > 0)


def test_correct_guesses_give_the_correct_class() -> None:
    method = noprop(steps=10).eval()
    torch.nn.init.eye_(method.out.weight)
    torch.nn.init.zeros_(method.out.bias)

    def correct(block: int, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return method.embedding[torch.tensor([2, 0, 3]).repeat(len(z) // len(x))]

    method.guess = correct  # type: ignore[method-assign]
    assert method(torch.randn(3, 5)).argmax(1).tolist() == [2, 0, 3]


def test_initial_embeddings() -> None:
    assert torch.equal(noprop().embedding, torch.eye(CLASSES))
    assert not noprop().embedding.requires_grad
    learned = noprop(embedding="learned", embedding_dim=9).embedding.detach()
    assert torch.allclose(learned @ learned.T, torch.eye(CLASSES), atol=1e-6)
    assert noprop(embedding="learned").embedding.requires_grad


@pytest.mark.parametrize("shape", [(5,), (1, 4, 4)])
def test_prototypes_start_from_the_image_nearest_to_the_class_mean(shape: tuple[int, ...]) -> None:
    method = noprop(shape, embedding="prototype")
    # Class 3 has no sample, so it keeps its initial embedding.
    steps = [batch(8, step, shape) for step in range(3)]
    steps = [Batch(one.x, one.y % 3, one.index, one.key) for one in steps]
    before = method.embedding.detach().clone()
    method.prepare(method.stages(1)[0], lambda: steps)
    x, y = torch.cat([one.x.flatten(1) for one in steps]), torch.cat([one.y for one in steps])
    for label in range(3):
        own = x[y == label]
        nearest = (own - own.mean(0)).norm(dim=1).argmin()
        assert torch.equal(method.embedding[label], own[nearest])
    assert torch.equal(method.embedding[3], before[3])
    assert method.eval()(torch.randn(2, *shape)).shape == (2, CLASSES)
    fixed = noprop(shape)
    fixed.prepare(fixed.stages(1)[0], lambda: steps)
    assert torch.equal(fixed.embedding, torch.eye(CLASSES))


def test_widths_of_a_denoiser() -> None:
    def widths(path: torch.nn.Sequential) -> list[int]:
        return [block.row.width for block in path]

    plain = Denoiser(create_network("cnn", (1, 8, 8), CLASSES, channels=(3, 6)), (20,), CLASSES, 256)
    assert widths(plain.image) == [3, 6, 256]
    assert widths(plain.label) == [256]
    assert widths(plain.residual) == [256, 256]
    assert widths(plain.fusion) == [256, 128, CLASSES]
    # The paper's network already ends in such a row.
    table = create_network("noprop", (1, 8, 8), CLASSES, width_factor=1 / 8)
    own = Denoiser(table, (1, 8, 8), CLASSES, 256)
    assert widths(own.image) == widths(own.label) == [row.width for row in table.rows] == [4, 8, 16, 32]
    assert own(torch.randn(3, 1, 8, 8), torch.randn(6, 64)).shape == (6, CLASSES)


def test_invalid_options_raise_a_user_error() -> None:
    for option, value in {
        "steps": 0,
        "embedding_dim": 0,
        "blocks_per_step": 0,
        "width": 1,
        "noise_samples": -1,
        "eta": 0,
        "snr_cap": 0,
    }.items():
        with pytest.raises(UserError, match=f"{option} must be"):
            noprop(**{option: value})
    method = noprop()
    with pytest.raises(UserError, match="change batch_size"):
        list(method.update(batch(1), method.stages(1)[0]))
