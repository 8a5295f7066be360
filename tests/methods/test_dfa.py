"""Direct Feedback Alignment against its equations, written out."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.dfa import DFA
from hff.modules.feedback import DenseFeedback
from hff.networks import create_network
from hff.training import Settings
from hff.training.optimizers import Optimizers

CLASSES = 4
X, Y = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), torch.arange(6) % CLASSES
IMAGES = torch.randn(6, 2, 6, 6, generator=torch.Generator().manual_seed(2))


def mlp(activation: str = "tanh", name: str = "dfa", dropout: float = 0.0, **options: Any) -> DFA:
    net = create_network("mlp", (5,), CLASSES, widths=(7, 6), activation=activation, dropout=dropout)
    method = create_method(name, net, CLASSES, **options)
    assert isinstance(method, DFA)
    return method


def cnn(**options: Any) -> DFA:
    net = create_network("cnn", (2, 6, 6), CLASSES, channels=(3, 5), activation="tanh")
    method = create_method("dfa", net, CLASSES, **options)
    assert isinstance(method, DFA)
    return method


def learn(method: DFA, x: Tensor = X, y: Tensor = Y) -> dict[str, Tensor | None]:
    ((group, _),) = method.update(Batch(x, y, torch.arange(len(y)), (0,)), method.stages(1)[0])
    assert group == "network"
    found = {name: p.grad for name, p in method.named_parameters()}
    method.zero_grad(set_to_none=True)
    return found


def feedback(method: DFA, layer: int) -> Tensor:
    found = method.feedback[f"block{layer}"]
    assert isinstance(found, DenseFeedback)
    return found.weight


def weights(method: DFA) -> list[tuple[Tensor, Tensor]]:
    return [(block.affine.weight.detach(), block.affine.bias.detach()) for block in method.blocks]


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_the_gradients_written_out(head: str) -> None:
    method = mlp(output=head)
    (w1, b1), (w2, b2), (w3, b3) = weights(method)
    h1 = torch.tanh(X @ w1.T + b1)
    h2 = torch.tanh(h1 @ w2.T + b2)
    z = h2 @ w3.T + b3
    p = torch.softmax(z, 1) if head == "softmax" else torch.sigmoid(z)
    e = (p - F.one_hot(Y, CLASSES)) / len(X)
    d1 = (e @ feedback(method, 0)) * (1 - h1**2)
    d2 = (e @ feedback(method, 1)) * (1 - h2**2)
    found = learn(method)
    for layer, (d, below) in enumerate(((d1, X), (d2, h1), (e, h2))):
        assert torch.allclose(found[f"blocks.{layer}.affine.weight"], d.T @ below, atol=1e-6)
        assert torch.allclose(found[f"blocks.{layer}.affine.bias"], d.sum(0), atol=1e-6)


@pytest.mark.parametrize("spread", ["dense", "replicated"])
def test_the_gradients_of_convolutions_written_out(spread: str) -> None:
    method = cnn(conv_feedback=spread)
    (w1, b1), (w2, b2), (w3, b3) = weights(method)
    h1 = torch.tanh(F.conv2d(IMAGES, w1, b1, padding=1))
    p1 = F.max_pool2d(h1, 2)
    h2 = torch.tanh(F.conv2d(p1, w2, b2, padding=1))
    p2, winners = F.max_pool2d(h2, 2, return_indices=True)
    e = (torch.softmax(p2.flatten(1) @ w3.T + b3, 1) - F.one_hot(Y, CLASSES)) / 6
    signal = e @ feedback(method, 1)
    # Only the maximum of each window gets the signal, times the derivative of tanh.
    d2 = F.max_unpool2d(signal.view(6, 5, 1, 1), winners, 2, output_size=(3, 3)) * (1 - h2**2)
    _, winners1 = F.max_pool2d(h1, 2, return_indices=True)
    signal = e @ feedback(method, 0)
    if spread == "replicated":
        signal = signal.view(6, 3, 1, 1).repeat(1, 1, 3, 3)
    d1 = F.max_unpool2d(signal.view(6, 3, 3, 3), winners1, 2, output_size=(6, 6)) * (1 - h1**2)
    found = learn(method, IMAGES)
    for layer, (d, below) in enumerate(((d1, IMAGES), (d2, p1))):
        patches = F.unfold(below, 3, padding=1)
        by_hand = torch.einsum("bop,bkp->ok", d.flatten(2), patches)
        assert torch.allclose(found[f"blocks.{layer}.affine.weight"].flatten(1), by_hand, atol=1e-6)
        assert torch.allclose(found[f"blocks.{layer}.affine.bias"], d.sum((0, 2, 3)), atol=1e-6)
    assert torch.allclose(found["blocks.2.affine.weight"], e.T @ p2.flatten(1), atol=1e-6)


def test_each_block_follows_the_gradient_of_a_linear_loss() -> None:
    method = cnn()
    scores = method(IMAGES).detach().requires_grad_()
    (e,) = torch.autograd.grad(F.cross_entropy(scores, Y), scores)
    found = learn(method, IMAGES)
    h = IMAGES
    for layer in range(2):
        out = method.blocks[layer](h.detach())
        loss = (out.flatten(1) * (e @ feedback(method, layer))).sum()
        expected = torch.autograd.grad(loss, method.block(layer).affine.weight)[0]
        assert torch.allclose(found[f"blocks.{layer}.affine.weight"], expected, atol=1e-6)
        h = out


@pytest.mark.parametrize("name", ["dfa", "ssdfa"])
@pytest.mark.parametrize("layer", [0, 1])
def test_the_blocks_above_affect_a_hidden_block_only_by_the_error_of_the_output(
    name: str, layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = mlp(name=name)
    own = [f"blocks.{layer}.affine.{kind}" for kind in ("weight", "bias")]
    loss, error = method.top_error(method(X), Y)
    before = learn(method)
    with torch.no_grad():
        for block in method.blocks[layer + 1 :]:
            for parameter in block.parameters():
                parameter.copy_(torch.randn_like(parameter))
    assert all(not torch.equal(before[key], learn(method)[key]) for key in own)
    monkeypatch.setattr(method, "top_error", lambda scores, y: (loss, error))
    assert all(torch.equal(before[key], learn(method)[key]) for key in own)
    assert method.info.gradient_reach == 0
    assert method.top_signal


def test_dropout_masks_the_signal_too() -> None:
    net = create_network("mlp", (5,), CLASSES, widths=(400,), activation="identity", dropout=0.5)
    method = create_method("dfa", net, CLASSES)
    assert isinstance(method, DFA)
    found = learn(method, X[:1], Y[:1])
    silent = found["blocks.1.affine.weight"].abs().sum(0) == 0
    assert 100 < silent.sum() < 300
    assert torch.equal(found["blocks.0.affine.bias"] == 0, silent)


def test_range_and_shape_of_the_feedback() -> None:
    net = create_network("cnn", (2, 32, 32), CLASSES, channels=(30,))
    units = 30 * 16 * 16
    for spread, count in (("dense", units), ("replicated", 30)):
        method = create_method("dfa", net, CLASSES, conv_feedback=spread, feedback_scale=2)
        assert isinstance(method, DFA)
        drawn = feedback(method, 0)
        assert drawn.shape == (CLASSES, count)
        assert 0.9 * 2 * units**-0.5 < drawn.abs().max() <= 2 * units**-0.5


@pytest.mark.parametrize("name", ["dfa", "ssdfa"])
def test_feedback_is_saved_and_does_not_learn(name: str) -> None:
    method, other = mlp(name=name), mlp("relu", name=name)
    stage = method.stages(1)[0]
    optimizers = Optimizers(method, stage, Settings(weight_decay=0.1))
    before = {key: value.clone() for key, value in method.feedback.state_dict().items()}
    forward = method.block(0).affine.weight.detach().clone()
    assert len(before) == (2 if name == "dfa" else 4)
    for _ in range(3):
        for group, _ in method.update(Batch(X, Y, torch.arange(6), (0,)), stage):
            optimizers.step((group,), 1e-2)
    assert not torch.equal(forward, method.block(0).affine.weight)
    changed = {key: value + 1 for key, value in method.state_dict().items()}
    other.load_state_dict(changed)
    for key, value in before.items():
        assert torch.equal(method.feedback.state_dict()[key], value)
        assert torch.equal(other.feedback.state_dict()[key], value + 1)


def test_the_first_gradients_from_zero_weights_written_out() -> None:
    method = mlp(start="zero")
    e = (torch.full((6, CLASSES), 1 / CLASSES) - F.one_hot(Y, CLASSES)) / 6
    found = learn(method)
    assert torch.allclose(found["blocks.0.affine.weight"], (e @ feedback(method, 0)).T @ X, atol=1e-6)
    assert not found["blocks.1.affine.weight"].any()
    assert torch.allclose(found["blocks.1.affine.bias"], (e @ feedback(method, 1)).sum(0), atol=1e-6)


def test_convolutions_can_be_frozen() -> None:
    net = create_network("direct_feedback", (3, 16, 16), CLASSES, width_factor=1 / 32)
    method = create_method("dfa", net, CLASSES, frozen="conv", start="zero")
    assert isinstance(method, DFA)
    stage = method.stages(2)[0]
    assert stage.blocks == (3, 4, 5)
    assert set(method.feedback) == {"block3", "block4"}
    assert all(bool(method.block(layer).affine.weight.any()) == (layer < 3) for layer in range(6))
    (group,) = method.parameter_groups(stage)["network"]
    learned = {p for layer in (3, 4, 5) for p in method.block(layer).parameters()}
    assert set(group.parameters) == learned
    found = learn(method, torch.randn(6, 3, 16, 16))
    assert all((found[name] is None) == (int(name.split(".")[1]) < 3) for name in found)


def test_angles_between_feedback_and_the_weights_above() -> None:
    method = mlp()
    (_, _), (w2, _), (w3, _) = weights(method)
    feedback(method, 1).copy_(2 * w3)
    feedback(method, 0).copy_(-(w3 @ w2))
    found = method.diagnostics()
    assert found["block1_angle"] == pytest.approx(0, abs=1e-3)
    assert found["block0_angle"] == pytest.approx(180, abs=1e-3)
    # Blocks below a convolution are left out.
    assert set(cnn(conv_feedback="replicated").diagnostics()) == {"block1_angle"}


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="activations with a derivative; use another one than 'step'"):
        mlp("step")
    with pytest.raises(UserError, match="feedback_scale must be above 0"):
        mlp(feedback_scale=-1)
    with pytest.raises(UserError, match="A relu layer whose weights start at zero"):
        mlp("relu", start="zero")
