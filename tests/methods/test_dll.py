"""DLL against its equations, written out for small networks."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.dll import DLL
from hff.networks import create_network
from hff.training import Settings
from hff.training.optimizers import Optimizers

CLASSES = 4
X, Y = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), torch.arange(6) % CLASSES


def mlp(**options: Any) -> DLL:
    net = create_network("mlp", (5,), CLASSES, widths=(7, 6), activation="tanh", bias=False)
    method = create_method("dll", net, CLASSES, **options)
    assert isinstance(method, DLL)
    return method


def learn(method: DLL, x: Tensor = X, y: Tensor = Y) -> list[Tensor]:
    ((group, _),) = method.update(Batch(x, y, torch.arange(len(y)), (0,)), method.stages(1)[0])
    assert group == "network"
    found = [p.grad for p in method.parameters()]
    assert all(each is not None for each in found)
    return found


def weights(method: DLL) -> list[Tensor]:
    return [method.block(layer).affine.weight.detach() for layer in range(3)]


def smooth(y: Tensor) -> Tensor:
    return 0.9 * F.one_hot(y, CLASSES) + 0.1 / CLASSES


def test_the_gradients_of_the_softmax_output_written_out() -> None:
    method = mlp()
    w0, w1, w2 = weights(method)
    theta1, theta2 = (feedback.weight for feedback in method.feedback)
    u1 = torch.tanh(X @ w0.T)
    u2 = torch.tanh(u1 @ w1.T)
    # The paper's errors are target minus output and their products are added: gradients are minus that.
    e3 = smooth(Y) - torch.softmax(u2 @ w2.T, 1)
    e2 = (e3 @ theta2) * (1 - u2**2)
    e1 = (e2 @ theta1) * (1 - u1**2)
    for mine, change in zip(learn(method), (e1.T @ X, e2.T @ u1, e3.T @ u2), strict=True):
        assert torch.allclose(mine, -change / len(X), atol=1e-6)


@pytest.mark.parametrize("derivative", ["one", "jacobian"])
def test_the_gradients_of_the_papers_mlp_written_out(derivative: str) -> None:
    method = mlp(output="softmax_features", softmax_derivative=derivative, squash_input=True)
    w0, w1, w2 = weights(method)
    theta1, theta2 = (feedback.weight for feedback in method.feedback)
    u1 = torch.tanh(X) @ w0.T
    u2 = torch.tanh(u1) @ w1.T
    p = torch.softmax(u2, 1)
    u3 = p @ w2.T
    assert torch.allclose(method(X), u3, atol=1e-6)
    e3 = smooth(Y) - u3
    relayed = e2 = e3 @ theta2
    if derivative == "jacobian":
        e2 = p * (relayed - (p * relayed).sum(1, keepdim=True))
    e1 = (1 - torch.tanh(u1) ** 2) * (e2 @ theta1)
    changes = (e1.T @ torch.tanh(X), e2.T @ torch.tanh(u1), e3.T @ p)
    for mine, change in zip(learn(method), changes, strict=True):
        assert torch.allclose(mine, -change / len(X), atol=1e-6)


def test_the_true_derivative_of_a_softmax_output_gives_the_squared_error() -> None:
    method = mlp(softmax_derivative="jacobian")
    scores = method(X).detach()
    p = torch.softmax(scores, 1)
    error = p - smooth(Y)
    at_scores = p * (error - (p * error).sum(1, keepdim=True))
    h = method.blocks[1](method.blocks[0](X))
    assert torch.allclose(learn(method)[2], at_scores.T @ h / len(X), atol=1e-6)
    assert float(method.loss(scores, Y)) == pytest.approx(float(0.5 * error.square().sum() / len(X)))


def test_the_linear_output_learns_by_squared_error() -> None:
    method = mlp(output="linear", label_smoothing=0)
    scores = method(X).detach()
    error = scores - F.one_hot(Y, CLASSES)
    h = method.blocks[1](method.blocks[0](X))
    assert torch.allclose(learn(method)[2], error.T @ h / len(X), atol=1e-6)
    assert float(method.loss(scores, Y)) == pytest.approx(float(0.5 * error.square().sum() / len(X)))


@pytest.mark.parametrize("table", ["cnn", "vgg11", "simcnn", "dll_cnn", "trifecta"])
def test_with_the_forward_weights_as_feedback_it_is_backpropagation(table: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "cnn": {"channels": (6, 8), "norm": "batch"},
        "simcnn": {"widths": (4, 6, 6), "downsample_at": (1,)},
        "dll_cnn": {"width_factor": 1 / 16},
    }
    net = create_network(table, (3, 32, 32), CLASSES, **options.get(table, {"width_factor": 1 / 32}))
    method = create_method("dll", net, CLASSES)
    assert isinstance(method, DLL)
    for layer, feedback in enumerate(method.feedback, start=1):
        feedback.weight.copy_(method.block(layer).affine.weight.detach())
    x = torch.randn(4, 3, 32, 32)
    F.cross_entropy(method(x), torch.arange(4), label_smoothing=0.1).backward()
    expected = {name: p.grad for name, p in method.named_parameters()}
    method.zero_grad(set_to_none=True)
    list(method.update(Batch(x, torch.arange(4), torch.arange(4), (0,)), method.stages(1)[0]))
    for name, parameter in method.named_parameters():
        if parameter.grad is None:
            # A norm of the network's input gets no error.
            assert name.startswith("blocks.0.norm")
            assert method.block(0).row.norm_at == "input"
        else:
            assert torch.allclose(parameter.grad, expected[name], atol=1e-5)


@pytest.mark.parametrize(("sign", "factor"), [("descent", 1), ("ascent", -1)])
def test_the_gradient_of_learned_feedback_written_out(sign: str, factor: int) -> None:
    method = mlp(feedback="learned", feedback_sign=sign)
    learn(method)
    w0, w1, w2 = weights(method)
    theta1, theta2 = (feedback.weight for feedback in method.feedback)
    u1 = torch.tanh(X @ w0.T)
    u2 = torch.tanh(u1 @ w1.T)
    e3 = torch.softmax(u2 @ w2.T, 1) - smooth(Y)
    e2 = (e3 @ theta2.detach()) * (1 - u2**2)
    sizes = 0.5 * (e3 @ theta2).square().sum() + 0.5 * (e2 @ theta1).square().sum()
    expected = torch.autograd.grad(sizes / len(X), (theta1, theta2))
    for theta, gradient in zip((theta1, theta2), expected, strict=True):
        assert torch.allclose(theta.grad, factor * gradient, atol=1e-6)


def test_the_gradient_of_learned_feedback_of_convolutions_written_out() -> None:
    net = create_network("cnn", (2, 6, 6), CLASSES, channels=(3, 4), activation="tanh", bias=False)
    method = create_method("dll", net, CLASSES, feedback="learned")
    assert isinstance(method, DLL)
    errors: dict[int, Tensor] = {}
    relay = method.relay

    def recording(layer: int, error: Tensor) -> Tensor:
        errors[layer] = error
        return relay(layer, error)

    method.relay = recording  # type: ignore[method-assign]
    learn(method, torch.randn(6, 2, 6, 6))
    error, theta = errors[1], method.feedback[0].weight
    below = F.conv_transpose2d(error, theta, padding=1)
    patches = F.unfold(below, 3, padding=1).view(6, 3 * 9, -1)
    by_hand = torch.einsum("bop,bkp->ok", error.flatten(2), patches).view_as(theta) * len(error)
    assert torch.allclose(theta.grad, by_hand, atol=1e-6)


def test_learned_feedback_has_its_own_learning_rate() -> None:
    method = mlp(feedback="learned", feedback_learning_rate=0.25)
    stage = method.stages(1)[0]
    blocks, feedback = method.parameter_groups(stage)["network"]
    assert (blocks.learning_rate, feedback.learning_rate) == (1, 0.25)
    before = [each.weight.detach().clone() for each in method.feedback]
    learn(method)
    Optimizers(method, stage, Settings()).step(("network",), 1e-2)
    for each, old in zip(method.feedback, before, strict=True):
        assert (each.weight.detach() - old).abs().max() == pytest.approx(2.5e-3, rel=0.01)
    assert not mlp().parameter_groups(stage)["network"][1].parameters


def test_relayed_errors_are_clipped_per_sample() -> None:
    free, cut = (mlp(feedback_scale=100, error_clamp=clamp) for clamp in (1e9, 0.5))
    error = torch.randn(6, CLASSES) / 6
    assert torch.allclose(cut.relay(2, error), free.relay(2, error).clamp(-0.5 / 6, 0.5 / 6))
    assert free.relay(2, error).abs().max() > 0.5
    # Two halves of a batch have the gradients of the whole batch, so clipping is per sample.
    whole = learn(cut)
    cut.zero_grad()
    first = [g.clone() for g in learn(cut, X[:3], Y[:3])]
    cut.zero_grad()
    for all_of_it, a, b in zip(whole, first, learn(cut, X[3:], Y[3:]), strict=True):
        assert torch.allclose(all_of_it, (a + b) / 2, atol=1e-6)


def test_scales_of_the_initial_weights() -> None:
    net = create_network("mlp", (50,), CLASSES, widths=(80, 80))
    method = create_method("dll", net, CLASSES, weight_scale=0.5, feedback_scale=2)
    assert isinstance(method, DLL)
    assert method.block(1).affine.weight.detach().std() == pytest.approx(0.5, rel=0.05)
    assert method.feedback[0].weight.std() == pytest.approx(2, rel=0.05)


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="activations with a derivative; use another one than 'step'"):
        create_method("dll", create_network("mlp", (5,), CLASSES, activation="step"), CLASSES)
    with pytest.raises(UserError, match="label_smoothing"):
        mlp(label_smoothing=1)
    with pytest.raises(UserError, match="error_clamp"):
        mlp(error_clamp=0)
