"""SoftHebb: the update by hand and by loops over patches, lengths that converge to one, presets."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.softhebb import SoftHebb
from hff.networks import AffineRow, Network, create_network


def softhebb(table: Network, **options: object) -> SoftHebb:
    method = create_method("softhebb", table, 3, **options)
    assert isinstance(method, SoftHebb)
    return method


def linear(inputs: int, units: int, **options: object) -> SoftHebb:
    return softhebb(create_network("mlp", (inputs,), 3, widths=(units,)), **options)


def by_loops(
    weights: list[list[float]], patches: list[list[float]], t: float, rate: float, q: float, sign: float
) -> list[list[float]]:
    """The rule, patch by patch and unit by unit, without tensors."""
    units, dim = len(weights), len(weights[0])
    total = [[0.0] * dim for _ in range(units)]
    for patch in patches:
        u = [sum(a * b for a, b in zip(w, patch, strict=True)) for w in weights]
        top = max(u)
        heat = [math.exp(t * (each - top)) for each in u]
        for k in range(units):
            share = heat[k] / sum(heat) * (1 if u[k] == top else sign)
            for i in range(dim):
                total[k][i] += share * (patch[i] - u[k] * weights[k][i])
    largest = max(abs(value) for row in total for value in row)
    lengths = [math.sqrt(sum(value**2 for value in w)) for w in weights]
    return [
        [rate * (abs(length - 1) + 1e-10) ** q * value / largest for value in row]
        for row, length in zip(total, lengths, strict=True)
    ]


def test_a_change_by_hand() -> None:
    method = linear(2, 2, temperature=math.log(3) / 2, rate=0.5, rate_power=2)
    with torch.no_grad():
        method.block(0).affine.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 2.0]]))
    x = torch.tensor([[1.0, 0.5]])
    # The responses are 3 and 1, so the shares are 3/4 and 1/4; the first unit wins, the second is repelled.
    # 3/4 ((1, 1/2) - 3 (3, 0)) = (-6, 3/8) and -1/4 ((1, 1/2) - 1 (0, 2)) = (-1/4, 3/8), over the largest, 6.
    # Lengths 3 and 2 are 2 and 1 away from one: rates 0.5 * 4 and 0.5 * 1.
    expected = [2 * -1.0, 2 * 0.375 / 6, 0.5 * -0.25 / 6, 0.5 * 0.375 / 6]
    change, watched = method.change(0, x, method.response(0, x))
    assert change.flatten().tolist() == pytest.approx(expected, abs=1e-6)
    assert watched.item() == pytest.approx(1.5)


@pytest.mark.parametrize(("anti_hebbian", "sign"), [(True, -1.0), (False, 1.0)])
def test_the_change_of_a_convolution_by_loops_over_patches(anti_hebbian: bool, sign: float) -> None:
    row = AffineRow("conv", 4, kernel=3, stride=2, padding=1, padding_mode="reflect")
    method = softhebb(
        Network("mine", (2, 5, 5), (row,)),
        temperature=0.7,
        rate=0.3,
        rate_power=0.5,
        radius=2,
        anti_hebbian=anti_hebbian,
    ).double()
    h = torch.randn(3, 2, 5, 5, dtype=torch.float64)
    method.enter(method.stages(2)[0])
    mean, variance = h.mean((0, 2, 3), keepdim=True), h.var((0, 2, 3), unbiased=False, keepdim=True)
    padded = F.pad((h - mean) / (variance + 1e-5).sqrt(), (1, 1, 1, 1), mode="reflect")
    patches = F.unfold(padded, 3, stride=2).transpose(1, 2).flatten(0, 1)
    weight = method.block(0).affine.weight
    method.layer_step(0, h, Batch(h, torch.zeros(3)))
    expected = by_loops(weight.flatten(1).tolist(), patches.tolist(), 0.7, 0.3, 0.5, sign)
    assert torch.allclose(-weight.grad.flatten(1), torch.tensor(expected, dtype=torch.float64), atol=1e-9)


def test_the_largest_change_is_the_rate() -> None:
    method = linear(6, 5, rate=0.25, rate_power=0)
    for scale in (1e-3, 1.0, 1e3):
        x = scale * torch.randn(8, 6)
        change, _ = method.change(0, x, method.response(0, x))
        assert change.abs().max().item() == pytest.approx(0.25, rel=1e-5)


def test_a_rate_of_zero_updates_only_the_statistics_of_norms() -> None:
    method = softhebb(create_network("cnn", (1, 8, 8), 3, channels=(4, 6)), rate=0)
    drawn = [method.block(layer).affine.weight.clone() for layer in (0, 1)]
    x = 5 + torch.randn(20, 1, 8, 8)
    method.enter(method.stages(2)[0])
    list(method.update(Batch(x, torch.zeros(20), torch.arange(20), (0,)), method.stages(2)[0]))
    for layer, before in enumerate(drawn):
        block = method.block(layer)
        assert torch.equal(block.affine.weight.grad, torch.zeros_like(before))
        assert block.norm.running_mean.abs().min() > 0


@pytest.mark.parametrize("radius", [25.0, 0.3])
@pytest.mark.parametrize("anti_hebbian", [True, False])
def test_lengths_converge_to_one(radius: float, anti_hebbian: bool) -> None:
    centers = 3 * torch.randn(4, 12)
    x = centers.repeat(250, 1) + torch.randn(1000, 12)
    method = linear(12, 6, radius=radius, rate=0.1, rate_power=0.5, temperature=1, anti_hebbian=anti_hebbian)
    stage = method.stages(2)[0]
    method.enter(stage)
    weight = method.block(0).affine.weight
    assert torch.allclose(weight.norm(dim=1).log(), torch.full((6,), math.log(radius)), atol=1)
    for epoch in range(12):
        for part in torch.randperm(1000).split(10):
            for _ in method.update(Batch(x[part], part, part, (0, 0, epoch, 0)), stage):
                weight.data -= weight.grad
                weight.grad = None
    won = torch.bincount(method.response(0, method.affine_input(0, x)).argmax(1), minlength=6)
    # Six units are two more than clusters; a unit that hardly ever wins is repelled and has another length.
    lengths = weight.norm(dim=1)[won > 100]
    assert len(lengths) >= 3
    assert torch.allclose(lengths, torch.ones_like(lengths), atol=0.01)


def test_a_unit_at_unit_length_hardly_changes() -> None:
    """A single unit has share 1 and follows Oja's rule, with x = w as fixed point."""
    method = linear(3, 1)
    with torch.no_grad():
        method.block(0).affine.weight.copy_(torch.tensor([[0.6, 0.0, 0.8]]))
    x = torch.tensor([[0.6, 0.0, 0.8]])
    change, away = method.change(0, x, method.response(0, x))
    assert away.item() == pytest.approx(0, abs=1e-6)
    assert change.abs().max().item() < 0.05


def test_initial_lengths() -> None:
    method = softhebb(create_network("softhebb", (3, 16, 16), 3, width_factor=0.5))
    for layer in range(3):
        lengths = method.block(layer).affine.weight.flatten(1).norm(dim=1)
        assert lengths.mean().item() == pytest.approx(25, rel=0.05)
    watched = method.diagnostics()
    assert list(watched) == [f"distance from unit length of block {layer}" for layer in range(3)]
    assert all(value == pytest.approx(24, rel=0.05) for value in watched.values())


def test_presets_and_options_for_each_block() -> None:
    method = softhebb(create_network("softhebb", (3, 16, 16), 3, width_factor=1 / 16))
    assert (method.temperatures, method.rates) == ([1.0, 0.65, 0.25], [0.08, 0.005, 0.01])
    assert method.rate_powers == [0.5] * 3
    deep = softhebb(create_network("cnn", (3, 16, 16), 3, channels=(4, 4, 4, 4)), rate=0.1)
    assert deep.temperatures == [1.0, 0.65, 0.25, 0.25]
    assert deep.rates == [0.1] * 4
    table = create_network("mlp", (6,), 3, widths=(4, 4))
    assert softhebb(table, temperature=(1.0, 2.0)).temperatures == [1.0, 2.0]
    with pytest.raises(UserError, match="rate must be one number for all 2 blocks or one for each"):
        softhebb(table, rate=(0.1, 0.2, 0.3))
    with pytest.raises(UserError, match="not negative, but is -1, -1"):
        softhebb(table, temperature=-1.0)
    with pytest.raises(UserError, match="block_batch_size must be at least 1, not 0"):
        softhebb(table, block_batch_size=0)


def test_norm_and_activation_of_the_network_are_replaced() -> None:
    method = softhebb(create_network("cnn", (3, 8, 8), 3, channels=(4, 4), norm="layer"))
    assert {(b.row.norm, b.row.norm_at, b.row.activation, b.row.bias) for b in method.blocks} == {
        ("batch_plain", "input", "triangle", False)
    }
    flat = linear(5, 3)
    x = flat.affine_input(0, 4 + 3 * torch.randn(6, 5))
    assert torch.allclose(x.mean(1), torch.zeros(6), atol=1e-5)
    assert torch.allclose(x.norm(dim=1), torch.full((6,), math.sqrt(5)), atol=1e-2)


def test_norms_update_statistics_only_while_their_block_learns() -> None:
    method = softhebb(create_network("cnn", (3, 8, 8), 3, channels=(4, 4)), layer_order="greedy")
    first, second, read_out = method.stages(2)

    def statistics(layer: int) -> Tensor:
        return method.block(layer).norm.running_mean.clone()

    batch = Batch(torch.randn(4, 3, 8, 8) + 1, torch.tensor([0, 1, 2, 0]), torch.arange(4), (0, 0, 0, 0))
    for stage, learning in ((first, [0]), (second, [1]), (read_out, [])):
        before = [statistics(layer) for layer in range(2)]
        method.enter(stage)
        list(method.update(batch, stage))
        moved = [layer for layer in range(2) if not torch.equal(before[layer], statistics(layer))]
        assert moved == learning
