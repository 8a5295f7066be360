"""Feedback weights send errors down the blocks; with the blocks' own weights this is backpropagation."""

from typing import Any

import pytest
import torch
from torch import Tensor

from hff.errors import UserError
from hff.modules.feedback import Feedback, FeedbackLinear, Pass, angle
from hff.networks import AffineBlock, AffineRow, Network, Pool, create_network

ROWS = {
    "linear": (AffineRow("linear", 5, activation="tanh"), (7,)),
    "flattened": (AffineRow("linear", 5), (2, 3, 3)),
    "pooled": (AffineRow("conv", 6, pool=Pool(2, 2)), (3, 8, 8)),
    "averaged": (AffineRow("conv", 6, activation="sin", pool=Pool(2, 2, kind="average")), (3, 8, 8)),
    "strided": (AffineRow("conv", 6, kernel=5, stride=2, padding=1, bias=False), (3, 10, 10)),
    "grouped": (AffineRow("conv", 6, groups=3, padding=0, activation="abs"), (3, 6, 6)),
    "down_sampled": (AffineRow("conv", 6, downsample=2, norm="layer"), (3, 8, 8)),
    "mirrored": (AffineRow("conv", 6, kernel=5, padding=2, padding_mode="reflect", power=1.5), (3, 6, 6)),
    "norm_before": (AffineRow("conv", 6, norm="batch", norm_at="input"), (3, 6, 6)),
    "norm_between": (AffineRow("linear", 6, norm="batch"), (5,)),
    "norm_after": (AffineRow("conv", 6, norm="layer", norm_at="output", pool=Pool(2, 2)), (3, 8, 8)),
}


def own_weights(block: AffineBlock) -> Feedback:
    feedback = Feedback(block)
    feedback.weight.copy_(block.affine.weight.detach())
    return feedback


def gradients(block: AffineBlock) -> list[Tensor]:
    found = [p.grad for p in block.parameters()]
    block.zero_grad(set_to_none=True)
    assert all(each is not None for each in found)
    return found


@pytest.mark.parametrize("name", ROWS)
def test_a_blocks_own_weights_give_backpropagation(name: str) -> None:
    row, shape = ROWS[name]
    block = AffineBlock(row, shape)
    x = torch.randn(4, *shape, requires_grad=True)
    error = torch.randn(4, *block.out_shape)
    expected = block(x)
    expected.backward(error)
    weights = gradients(block)
    done = Pass(block, x.detach())
    assert torch.equal(done.out, expected)
    assert not done.out.requires_grad
    below = done.down(own_weights(block)(done.learn(error)))
    assert torch.allclose(below, x.grad, atol=1e-6)
    for mine, theirs in zip(gradients(block), weights, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_an_error_is_sent_by_the_feedback_weights_and_not_by_the_blocks() -> None:
    block = AffineBlock(AffineRow("linear", 2, activation="identity"), (3,))
    feedback = Feedback(block)
    feedback.weight.copy_(torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]]))
    done = Pass(block, torch.tensor([[1.0, 2.0, 3.0]]))
    at_map = done.learn(torch.tensor([[10.0, 1.0]]))
    assert at_map.tolist() == [[10.0, 1.0]]
    assert done.down(feedback(at_map)).tolist() == [[10.0, -1.0, 21.0]]
    assert block.affine.weight.grad.tolist() == [[10.0, 20.0, 30.0], [1.0, 2.0, 3.0]]


def test_gradients_accumulate() -> None:
    block = AffineBlock(AffineRow("linear", 2), (3,))
    x, error = torch.rand(5, 3), torch.randn(5, 2)
    Pass(block, x).learn(error)
    once = block.affine.weight.grad.clone()
    Pass(block, x).learn(error)
    assert torch.allclose(block.affine.weight.grad, 2 * once)


@pytest.mark.parametrize(
    "row", [AffineRow("linear", 400), AffineRow("conv", 128), AffineRow("conv", 128, groups=4)]
)
def test_an_error_keeps_its_size_on_the_way_down(row: AffineRow) -> None:
    shape = (300,) if row.kind == "linear" else (64, 12, 12)
    block = AffineBlock(row, shape)
    # Fewer errors add up at the border of a map.
    below = Feedback(block)(torch.randn(8, *block.map_shape))
    inner = below if row.kind == "linear" else below[:, :, 1:-1, 1:-1]
    assert inner.square().mean().sqrt() == pytest.approx(1, abs=0.1)


def test_scale_and_learning() -> None:
    block = AffineBlock(AffineRow("conv", 40), (30, 8, 8))
    fixed, learned = Feedback(block, scale=0.5), Feedback(block, learned=True)
    assert fixed.weight.shape == block.affine.weight.shape
    assert fixed.weight.std() == pytest.approx(0.5, rel=0.05)
    assert not list(fixed.parameters())
    assert "weight" in fixed.state_dict()
    assert list(learned.parameters())
    with pytest.raises(UserError, match="feedback_scale must be above 0"):
        Feedback(block, scale=0)


@pytest.mark.parametrize(
    ("scale", "expected"),
    # For a grouped convolution: 15 x 9 weights into a unit, and 20 x 9 errors out of it.
    [("weights", (3 * 135) ** -0.5), ("xavier", (2 / (135 + 180)) ** 0.5), (None, 180**-0.5), (3, 3.0)],
)
def test_scales_by_name(scale: Any, expected: float) -> None:
    block = AffineBlock(AffineRow("conv", 40, groups=2), (30, 8, 8))
    assert Feedback(block, scale=scale).weight.std() == pytest.approx(expected, rel=0.05)
    if scale == "weights":
        assert block.affine.weight.detach().std() == pytest.approx(expected, rel=0.05)


def test_distributions_have_the_same_standard_deviation() -> None:
    block = AffineBlock(AffineRow("linear", 100), (200,))
    normal, uniform, signs = (
        Feedback(block, scale=0.5, distribution=each).weight for each in ("normal", "uniform", "signs")
    )
    for weight in (normal, uniform, signs):
        assert weight.std() == pytest.approx(0.5, rel=0.03)
        assert weight.mean() == pytest.approx(0, abs=0.02)
    assert normal.abs().max() > 1.5
    assert 0.85 < uniform.abs().max() <= 0.75**0.5
    assert set(signs.flatten().tolist()) == {-0.5, 0.5}


def test_angles() -> None:
    a = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert angle(a, 7 * a) == 0
    assert angle(a, -a) == 180
    assert angle(a, torch.tensor([[1.0, 0.0], [0.0, 1.0]])) == pytest.approx(45)
    assert angle(a, torch.zeros(2, 2)) == 90


def test_the_output_row_is_added_or_taken_over() -> None:
    plain = Network("mine", (4,), (AffineRow("linear", 6, bias=False, activation="tanh"),))
    added = plain.with_output(3)
    assert added.rows == (*plain.rows, AffineRow("linear", 3, bias=False, activation="identity"))
    deep = create_network("vgg11", (3, 32, 32), 4, width_factor=1 / 32)
    taken = deep.with_output(4)
    assert len(taken.rows) == len(deep.rows)
    assert taken.rows[:-1] == deep.rows[:-1]
    assert (taken.rows[-1].activation, taken.rows[-1].width) == ("identity", 4)


def test_the_error_uses_the_fixed_weights_and_the_layer_learns_as_usual() -> None:
    layer = FeedbackLinear(3, 2)
    x = torch.randn(5, 3, requires_grad=True)
    error = torch.randn(5, 2)
    out = layer(x)
    out.backward(error)
    assert torch.equal(out, x @ layer.weight.T + layer.bias)
    assert torch.allclose(x.grad, error @ layer.feedback)
    assert torch.allclose(layer.weight.grad, error.T @ x.detach())
    assert torch.allclose(layer.bias.grad, error.sum(0))
    assert not torch.allclose(layer.feedback, layer.weight)


def test_feedback_is_saved_but_never_trained() -> None:
    layer = FeedbackLinear(3, 2)
    assert "feedback" in layer.state_dict()
    assert {name for name, _ in layer.named_parameters()} == {"weight", "bias"}
    assert torch.equal(layer(torch.ones(1, 3)), layer(torch.ones(1, 3, requires_grad=True)))
