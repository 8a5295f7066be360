"""Feedback Alignment against its equations, written out, and against backpropagation."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.fa import FA
from hff.modules.feedback import Feedback
from hff.networks import create_network
from hff.training import Settings
from hff.training.optimizers import Optimizers

CLASSES = 4
X, Y = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), torch.arange(6) % CLASSES
TABLES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "mlp": ((5,), {"widths": (7, 6, 5)}),
    "cnn": ((3, 12, 12), {"channels": (6, 8)}),
    "direct_feedback": ((3, 32, 32), {"width_factor": 1 / 32}),
    "vgg11": ((3, 32, 32), {"width_factor": 1 / 32, "norm": "batch"}),
}


def mlp(activation: str = "tanh", **options: Any) -> FA:
    net = create_network("mlp", (5,), CLASSES, widths=(7, 6), activation=activation)
    method = create_method("fa", net, CLASSES, **options)
    assert isinstance(method, FA)
    return method


def learn(method: FA, x: Tensor = X, y: Tensor = Y) -> dict[str, Tensor]:
    ((group, _),) = method.update(Batch(x, y, torch.arange(len(y)), (0,)), method.stages(1)[0])
    assert group == "network"
    found = {name: p.grad for name, p in method.named_parameters()}
    method.zero_grad(set_to_none=True)
    return found


def feedback(method: FA) -> list[Feedback]:
    assert all(isinstance(each, Feedback) for each in method.feedback)
    return list(method.feedback)


def test_the_gradients_written_out() -> None:
    method = mlp()
    (w1, b1), (w2, b2), (w3, b3) = (
        (block.affine.weight.detach(), block.affine.bias.detach()) for block in method.blocks
    )
    back2, back3 = (each.weight for each in feedback(method))
    h1 = torch.tanh(X @ w1.T + b1)
    h2 = torch.tanh(h1 @ w2.T + b2)
    d3 = (torch.softmax(h2 @ w3.T + b3, 1) - F.one_hot(Y, CLASSES)) / len(X)
    d2 = (d3 @ back3) * (1 - h2**2)
    d1 = (d2 @ back2) * (1 - h1**2)
    found = learn(method)
    for layer, (d, below) in enumerate(((d1, X), (d2, h1), (d3, h2))):
        assert torch.allclose(found[f"blocks.{layer}.affine.weight"], d.T @ below, atol=1e-6)
        assert torch.allclose(found[f"blocks.{layer}.affine.bias"], d.sum(0), atol=1e-6)


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
@pytest.mark.parametrize("table", TABLES)
def test_with_the_forward_weights_as_feedback_it_is_backpropagation(table: str, head: str) -> None:
    shape, options = TABLES[table]
    method = create_method("fa", create_network(table, shape, CLASSES, **options), CLASSES, output=head)
    assert isinstance(method, FA)
    x = torch.randn(6, *shape)

    def difference() -> float:
        found = learn(method, x)
        largest = max(g.abs().max() for g in expected.values())
        return float(max((found[name] - g).abs().max() for name, g in expected.items()) / largest)

    scores = method(x)
    target = F.one_hot(Y, CLASSES).float()
    # The binary cross-entropy of each sample, summed over classes.
    binary = -(target * F.logsigmoid(scores) + (1 - target) * F.logsigmoid(-scores)).sum() / len(x)
    (F.cross_entropy(scores, Y) if head == "softmax" else binary).backward()
    expected = {name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None}
    method.zero_grad(set_to_none=True)
    assert difference() > 0.05
    for layer, each in enumerate(feedback(method), start=1):
        each.weight.copy_(method.block(layer).affine.weight.detach())
    assert difference() < 1e-5


def test_dropout_masks_the_error_too() -> None:
    net = create_network("mlp", (5,), CLASSES, widths=(400,), activation="identity", dropout=0.5)
    method = create_method("fa", net, CLASSES)
    assert isinstance(method, FA)
    found = learn(method, X[:1], Y[:1])
    silent = found["blocks.1.affine.weight"].abs().sum(0) == 0
    assert 100 < silent.sum() < 300
    assert torch.equal(found["blocks.0.affine.bias"] == 0, silent)


def test_sign_symmetry_follows_the_forward_weights() -> None:
    method = mlp(feedback="sign", feedback_scale=0.25)
    weights = [block.affine.weight for block in method.blocks]
    for _ in range(2):
        learn(method)
        for each, weight in zip(feedback(method), weights[1:], strict=True):
            assert torch.equal(each.weight, 0.25 * weight.detach().sign())
        for weight in weights:
            weight.data.neg_()
    assert not [name for name, _ in method.named_parameters() if "feedback" in name]


def test_random_feedback_is_saved_and_does_not_learn() -> None:
    method, other = mlp(), mlp("relu")
    stage = method.stages(1)[0]
    optimizers = Optimizers(method, stage, Settings(weight_decay=0.1))
    before = [each.weight.clone() for each in feedback(method)]
    forward = method.block(1).affine.weight.detach().clone()
    for _ in range(3):
        for group, _ in method.update(Batch(X, Y, torch.arange(6), (0,)), stage):
            optimizers.step((group,), 1e-2)
    assert not torch.equal(forward, method.block(1).affine.weight)
    for each, old in zip(feedback(method), before, strict=True):
        assert torch.equal(each.weight, old)
    other.load_state_dict({name: 2 * value for name, value in method.state_dict().items()})
    for each, old in zip(feedback(other), before, strict=True):
        assert torch.equal(each.weight, 2 * old)


def test_diagnostics_are_angles_and_norm_ratios() -> None:
    method = mlp()
    first, second = feedback(method)
    first.weight.copy_(3 * method.block(1).affine.weight.detach())
    second.weight.zero_()
    second.weight[0, :2] = torch.tensor([0.0, 2.0])
    torch.nn.init.zeros_(method.block(2).affine.weight)
    method.block(2).affine.weight.data[0, :2] = torch.tensor([-0.5, 0.5])
    found = method.diagnostics()
    assert set(found) == {"block1_angle", "block1_norm_ratio", "block2_angle", "block2_norm_ratio"}
    assert found["block1_angle"] == pytest.approx(0, abs=1e-3)
    assert found["block1_norm_ratio"] == pytest.approx(3)
    assert found["block2_angle"] == pytest.approx(45)
    assert found["block2_norm_ratio"] == pytest.approx(2 * math.sqrt(2))


def test_forward_weights_align_with_the_feedback() -> None:
    method = mlp(start="zero")
    stage = method.stages(1)[0]
    optimizers = Optimizers(method, stage, Settings())
    assert method.diagnostics()["block2_angle"] == 90
    for _ in range(30):
        for group, _ in method.update(Batch(X, Y, torch.arange(6), (0,)), stage):
            optimizers.step((group,), 1e-2)
    assert method.diagnostics()["block2_angle"] < 75


@pytest.mark.parametrize(("start", "zero"), [("network", 0), ("zero", 3), ("zero_above", 2)])
def test_initial_weights_and_biases(start: str, zero: int) -> None:
    method = mlp("relu", start=start, bias_start=0.1)
    at_zero = [not bool(block.affine.weight.any()) for block in method.blocks]
    assert at_zero == [False] * (3 - zero) + [True] * zero
    biases = [block.affine.bias.detach() for block in method.blocks]
    assert [bool((bias == 0.1).all()) for bias in biases[:2]] == at_zero[:2]
    if zero:
        assert not biases[2].any()


def test_from_zero_weights_only_the_first_layer_has_a_gradient() -> None:
    found = learn(mlp(start="zero"))
    assert found["blocks.0.affine.weight"].any()
    assert not found["blocks.1.affine.weight"].any()
    assert not found["blocks.2.affine.weight"].any()


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="activations with a derivative; use another one than 'step'"):
        mlp("step")
    with pytest.raises(UserError, match="feedback_scale must be above 0"):
        mlp(feedback_scale=0)

    for dead in ("relu", "abs"):
        with pytest.raises(UserError, match=f"A {dead} layer whose weights start at zero"):
            mlp(dead, start="zero")
    for options in ({"bias": False}, {"norm": "batch"}):
        net = create_network("mlp", (5,), CLASSES, widths=(7,), **options)
        with pytest.raises(UserError, match="A relu layer whose weights start at zero"):
            create_method("fa", net, CLASSES, start="zero", bias_start=0.1)
