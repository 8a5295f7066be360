"""Scalable Forward-Forward: goodness of class channels, loss, and the input of the next layer."""

import pytest
import torch
import torch.nn.functional as F

from hff import functional
from hff.batch import Batch
from hff.data import DataSet
from hff.methods import create_method
from hff.methods.sff import ScalableForwardForward
from hff.networks import Network, create_network
from hff.training import Settings, fit

CLASSES = 4


def conv_net() -> Network:
    return create_network("cnn", (3, 8, 8), CLASSES, channels=(6, 8))


def linear_net() -> Network:
    return create_network("mlp", (5,), CLASSES, widths=(7, 6))


def sff(net: Network, **options: object) -> ScalableForwardForward:
    method = create_method("sff", net, CLASSES, **options)
    assert isinstance(method, ScalableForwardForward)
    return method


def labels(size: int) -> torch.Tensor:
    return torch.arange(size) % CLASSES


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_goodness_is_the_mean_square_of_each_class_channel(kernel: int) -> None:
    method = sff(conv_net(), kernel=kernel)
    x = torch.randn(5, 3, 8, 8)
    h = method.block(0)(x)
    head = method.heads[0]
    assert head.weight.shape == (CLASSES, 6, kernel, kernel)
    patches = F.unfold(h, kernel, padding=kernel // 2)
    channels = head.weight.flatten(1) @ patches + head.bias[:, None]
    expected = channels.square().mean(2)
    scores = dict(method.layer_scores(x))[0]
    assert torch.allclose(scores, expected, atol=1e-6)
    # Pooling before the square would be a different rule.
    assert not torch.allclose(scores, channels.mean(2).square(), atol=1e-3)


def test_goodness_of_linear_layers_is_a_squared_linear_map() -> None:
    method = sff(linear_net())
    x = torch.randn(5, 5)
    h = method.block(0)(x)
    expected = (h @ method.heads[0].weight.T + method.heads[0].bias).square()
    assert torch.allclose(dict(method.layer_scores(x))[0], expected)


def test_the_loss_is_the_smooth_margin_at_temperature_one() -> None:
    method = sff(conv_net())
    x, y = torch.randn(8, 3, 8, 8), labels(8)
    g = dict(method.layer_scores(x))[0]
    others = torch.stack([torch.cat([row[:own], row[own + 1 :]]) for row, own in zip(g, y, strict=True)])
    margin = F.softplus(others.logsumexp(1) - g[range(8), y]).mean()
    loss, _ = method.layer_step(0, x, Batch(x, y))
    assert torch.allclose(loss, margin)
    assert torch.allclose(loss, functional.smooth_margin_loss(g, y, 1.0))


def test_the_gradient_of_the_auxiliary_map_in_closed_form() -> None:
    method = sff(linear_net())
    x, y = torch.randn(8, 5), labels(8)
    h = method.block(0)(x).detach()
    q = (h @ method.heads[0].weight.T + method.heads[0].bias).detach()
    error = (q.square().softmax(1) - F.one_hot(y, CLASSES)) * 2 * q / 8
    method.layer_step(0, x, Batch(x, y))
    assert torch.allclose(method.heads[0].weight.grad, error.T @ h, atol=1e-6)
    assert torch.allclose(method.heads[0].bias.grad, error.sum(0), atol=1e-6)


@pytest.mark.parametrize("net", [conv_net(), linear_net()])
def test_the_next_layer_gets_the_normalized_activity_and_the_head_does_not(net: Network) -> None:
    method = sff(net)
    x, y = torch.randn(8, *net.in_shape), labels(8)
    activity = method.block(0).activity(x)
    loss, out = method.layer_step(0, x, Batch(x, y))
    flat = activity.flatten(1)
    expected = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, False, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(out.flatten(1), expected, atol=1e-5)
    assert not out.requires_grad
    assert torch.allclose(loss, F.cross_entropy(method.scores(0, activity), y))
    # Twice the activity is four times the goodness, because the bias starts at zero.
    assert torch.allclose(method.scores(0, 2 * activity), 4 * method.scores(0, activity), atol=1e-5)
    assert torch.allclose(method.forward_block(0, x), out, atol=1e-6)


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_goodness_starts_between_a_tenth_and_one(kernel: int) -> None:
    for net in (
        create_network("cnn", (1, 28, 28), 10, channels=(32, 64)),
        create_network("mlp", (1, 28, 28), 10, widths=(500, 500, 500)),
    ):
        method = create_method("sff", net, 10, kernel=kernel)
        for _, scores in method.layer_scores(torch.randn(64, 1, 28, 28)):
            assert 0.1 < float(scores.detach().mean()) < 1


def test_the_auxiliary_maps_have_their_own_learning_rate_and_decay() -> None:
    method = sff(conv_net(), aux_learning_rate=0.5, aux_weight_decay=0.01)
    block, auxiliary = method.parameter_groups(method.stages(1)[0])["block1"]
    assert set(block.parameters) == set(method.blocks[1].parameters())
    assert (block.learning_rate, block.weight_decay) == (1.0, None)
    assert set(auxiliary.parameters) == set(method.heads[1].parameters())
    assert (auxiliary.learning_rate, auxiliary.weight_decay) == (0.5, 0.01)


def test_outputs_are_computed_before_the_optimizer_step() -> None:
    method = sff(linear_net())
    x, y = torch.randn(8, 5), labels(8)
    expected = [F.cross_entropy(scores, y) for _, scores in method.layer_scores(x)]
    steps = method.update(Batch(x, y, torch.arange(8), (0, 0, 0, 0)), method.stages(1)[0])
    for layer, (_, loss) in enumerate(steps):
        assert torch.allclose(loss, expected[layer])
        with torch.no_grad():
            for parameter in method.blocks[layer].parameters():
                parameter.zero_()


def test_convolutions_learn_digits(digits: DataSet) -> None:
    net = create_network("cnn", digits.in_shape, 10, channels=(8, 16))
    summary = fit(
        create_method("sff", net, 10), digits, Settings(epochs=4, batch_size=32, learning_rate=3e-3)
    )
    assert summary["read_out_accuracy"] > 0.8
