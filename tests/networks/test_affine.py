"""`AffineBlock`: the order of its parts, norms, activations, downsampling and errors."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff.errors import UserError
from hff.networks import ACTIVATIONS, AffineBlock, AffineRow, Pool


def test_a_block_is_an_affine_map_an_activation_and_pooling() -> None:
    block = AffineBlock(AffineRow("conv", 4, pool=Pool(2, 2)), (3, 8, 8))
    x = torch.randn(2, 3, 8, 8)
    expected = F.max_pool2d(F.relu(F.conv2d(x, block.affine.weight, block.affine.bias, padding=1)), 2)
    assert torch.equal(block(x), expected)
    assert block(x).shape[1:] == block.out_shape


@pytest.mark.parametrize("place", ["input", "preactivation", "output"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_the_norm_is_applied_at_the_place_in_the_row(place: str, norm: str) -> None:
    block = AffineBlock(AffineRow("conv", 4, norm=norm, norm_at=place, pool=Pool(2, 2)), (3, 8, 8))
    shapes = {"input": (3, 8, 8), "preactivation": (4, 8, 8), "output": (4, 4, 4)}
    assert normed_shapes(block) == [shapes[place]]


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("in_shape", [(6,), (3, 4, 4)])
def test_the_input_of_a_linear_layer_is_normalized_before_it_is_flattened(
    norm: str, in_shape: tuple[int, ...]
) -> None:
    block = AffineBlock(AffineRow("linear", 5, norm=norm, norm_at="input"), in_shape)
    assert normed_shapes(block) == [in_shape]


def normed_shapes(block: AffineBlock) -> list[tuple[int, ...]]:
    seen: list[tuple[int, ...]] = []
    block.norm.register_forward_hook(lambda module, inputs, output: seen.append(tuple(inputs[0].shape[1:])))
    block(torch.randn(5, *block.in_shape))
    return seen


def test_plain_batch_norm_has_statistics_but_no_parameters() -> None:
    plain = AffineBlock(AffineRow("conv", 5, bias=False, norm="batch_plain"), (3, 4, 4))
    assert [name for name, _ in plain.named_parameters()] == ["affine.weight"]
    assert "norm.running_var" in plain.state_dict()
    f = plain.preactivation(torch.randn(4, 3, 4, 4))
    assert torch.allclose(f.mean((0, 2, 3)), torch.zeros(5), atol=1e-6)


def test_plain_layer_norm_has_no_parameters() -> None:
    plain = AffineBlock(AffineRow("linear", 5, bias=False, norm="layer_plain"), (3,))
    assert [name for name, _ in plain.named_parameters()] == ["affine.weight"]
    f = plain.preactivation(torch.randn(4, 3))
    assert torch.allclose(f.mean(1), torch.zeros(4), atol=1e-6)
    assert torch.allclose(f.var(1, unbiased=False), torch.ones(4), atol=1e-3)
    learned = AffineBlock(AffineRow("linear", 5, bias=False, norm="layer"), (3,))
    assert len(list(learned.parameters())) == 3


def test_the_epsilon_of_a_norm_is_that_of_the_row() -> None:
    for norm in ("batch", "batch_plain", "layer", "layer_plain"):
        assert AffineBlock(AffineRow("linear", 5, norm=norm, norm_eps=0.25), (3,)).norm.eps == 0.25


def test_the_activity_is_the_output_before_dropout() -> None:
    block = AffineBlock(
        AffineRow("conv", 4, pool=Pool(2, 2), norm="layer", norm_at="output", dropout=0.5), (3, 8, 8)
    )
    x = torch.randn(2, 3, 8, 8)
    activity = block.activity(x)
    h = block.activate(block.preactivation(x))
    assert torch.equal(activity, block.pooled(h))
    torch.manual_seed(1)
    forward = block(x)
    torch.manual_seed(1)
    assert torch.equal(forward, block.output(h))
    kept = forward != 0
    assert 0.3 < kept.float().mean() < 0.7
    assert torch.allclose(forward[kept], 2 * activity[kept])
    block.eval()
    assert torch.equal(block(x), activity)


def test_activations() -> None:
    f = torch.tensor([-2.0, 0.0, 0.5])
    expected = {
        "relu": [0.0, 0.0, 0.5],
        "leaky_relu": torch.tensor([-0.02, 0.0, 0.5]).tolist(),
        "abs": [2.0, 0.0, 0.5],
        "step": [0.0, 0.0, 1.0],
        "gelu": F.gelu(f).tolist(),
        "tanh": torch.tanh(f).tolist(),
        "hard_tanh": [-1.0, 0.0, 0.5],
        "sigmoid": torch.sigmoid(f).tolist(),
        "sin": torch.sin(f).tolist(),
        "identity": [-2.0, 0.0, 0.5],
    }
    others = ACTIVATIONS.keys() - {"triangle"}
    assert {name: ACTIVATIONS[name](f).tolist() for name in others} == expected


def test_triangle_subtracts_the_mean_over_units_at_each_position_before_relu() -> None:
    assert ACTIVATIONS["triangle"](torch.tensor([[1.0, 2.0, 6.0], [0.0, -1.0, -2.0]])).tolist() == [
        [0.0, 0.0, 3.0],
        [1.0, 0.0, 0.0],
    ]
    maps = torch.tensor([[[[1.0, 5.0]], [[3.0, 1.0]]]])
    assert ACTIVATIONS["triangle"](maps).tolist() == [[[[0.0, 2.0]], [[1.0, 0.0]]]]


def test_the_power_of_an_activity_has_a_finite_gradient_at_zero() -> None:
    block = AffineBlock(AffineRow("linear", 4, power=0.5), (3,))
    f = torch.tensor([[-1.0, 0.0, 4.0, 9.0]], requires_grad=True)
    h = block.activate(f)
    assert h.tolist() == [[0.0, 0.0, 2.0, 3.0]]
    h.sum().backward()
    assert f.grad.tolist() == [[0.0, 0.0, 0.25, pytest.approx(1 / 6)]]


def test_borders_are_mirrored_after_the_norm() -> None:
    row = AffineRow(
        "conv", 5, kernel=5, padding=2, padding_mode="reflect", norm="batch_plain", norm_at="input"
    )
    block = AffineBlock(row, (3, 8, 6))
    assert (block.affine_in_shape, block.map_shape) == ((3, 12, 10), (5, 8, 6))
    assert normed_shapes(block) == [(3, 8, 6)]
    x = torch.randn(4, 3, 8, 6)
    padded = affine_input_of(block, x)
    assert torch.equal(padded[..., 2:-2, 2:-2], block.norm(x))
    assert torch.equal(padded[..., 0, :], padded[..., 4, :])
    assert torch.equal(padded[..., -1], padded[..., -5])
    reference = nn.Conv2d(3, 5, 5, padding=2, padding_mode="reflect")
    reference.load_state_dict(block.affine.state_dict())
    assert torch.allclose(block.preactivation(x), reference(block.norm(x)), atol=1e-6)
    with pytest.raises(UserError, match="too small to be mirrored"):
        AffineBlock(row, (3, 2, 8))


def affine_input_of(block: AffineBlock, x: Tensor) -> Tensor:
    seen: list[Tensor] = []
    block.affine.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    block(x)
    return seen[0]


def test_downsampling_moves_patches_into_channels() -> None:
    block = AffineBlock(AffineRow("conv", 5, downsample=2), (1, 2, 4))
    assert (block.in_shape, block.affine_in_shape, block.out_shape) == ((1, 2, 4), (4, 1, 2), (5, 1, 2))
    x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]]])
    channels = [[[1.0, 3.0]], [[2.0, 4.0]], [[5.0, 7.0]], [[6.0, 8.0]]]
    assert affine_input_of(block, x)[0].tolist() == channels


def test_downsampling_is_invertible_and_comes_before_the_norm() -> None:
    block = AffineBlock(AffineRow("conv", 5, downsample=2, norm="batch", norm_at="input"), (3, 8, 6))
    assert normed_shapes(block) == [(12, 4, 3)]
    block = AffineBlock(AffineRow("conv", 5, downsample=2), (3, 8, 6))
    x = torch.randn(2, 3, 8, 6)
    assert torch.equal(F.pixel_shuffle(affine_input_of(block, x), 2), x)


def test_downsampling_refuses_maps_that_are_not_divisible_and_linear_layers() -> None:
    with pytest.raises(UserError, match="divisible by 2, not 8x7"):
        AffineBlock(AffineRow("conv", 5, downsample=2), (3, 8, 7))
    with pytest.raises(UserError, match="Only convolutions downsample"):
        AffineBlock(AffineRow("linear", 5, downsample=2), (3, 8, 8))


@pytest.mark.parametrize(("channels", "width"), [(4, 6), (6, 4)])
def test_input_and_output_channels_must_be_divisible_by_the_groups(channels: int, width: int) -> None:
    AffineBlock(AffineRow("conv", 6, groups=3), (6, 8, 8))
    with pytest.raises(UserError, match=f"from {channels} to {width} channels cannot have 3 groups"):
        AffineBlock(AffineRow("conv", width, groups=3), (channels, 8, 8))


@pytest.mark.parametrize("place", ["input", "preactivation", "output"])
@pytest.mark.parametrize("norm", ["batch", "layer_plain"])
def test_affine_in_evaluation_is_true_where_the_preactivation_is_affine(norm: str, place: str) -> None:
    row = AffineRow("conv", 4, downsample=2, pool=Pool(2, 2), norm=norm, norm_at=place)
    block = AffineBlock(row, (3, 8, 8)).double()
    for module in block.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    block.eval()
    a, b = torch.randn(2, 4, 3, 8, 8, dtype=torch.float64)
    f = block.preactivation
    curvature = (f(a + b) - f(a) - f(b) + f(torch.zeros_like(a))).abs().max()
    assert (curvature < 1e-10) == block.affine_in_evaluation


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh", "identity", "tanh", "gelu"])
def test_pooling_before_the_activation_changes_no_bit(activation: str) -> None:
    torch.manual_seed(0)
    block = AffineRow("conv", 4, activation=activation, pool=Pool(2, 2)).build((3, 8, 8))
    found = []
    for activity in (block.activity, lambda x: block.pooled(block.activate(block.preactivation(x)))):
        block.zero_grad()
        out = activity(torch.ones(2, 3, 8, 8).cumsum(3))
        out.square().sum().backward()
        found.append((out.detach(), block.affine.weight.grad.clone()))
    torch.testing.assert_close(*found, rtol=0, atol=0)
    assert block.pools_first == (activation not in ("tanh", "gelu"))
