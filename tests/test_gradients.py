"""Closed-form gradients against autograd, in double precision."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hff import functional, gradients
from hff.networks.affine import ACTIVATIONS

SCORES = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 4, 0, 1, 1])


def by_autograd(loss: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    at = at.clone().requires_grad_()
    value = loss(at)
    (gradient,) = torch.autograd.grad(value.sum(), at)
    return value.detach(), gradient


@pytest.mark.parametrize("lse", ["sum", "mean"])
@pytest.mark.parametrize("scale_margin", [True, False])
@pytest.mark.parametrize("size", [1.0, 40.0])
def test_smooth_margin_loss_of_several_layers(lse: str, scale_margin: bool, size: float) -> None:
    options = {"lse": lse, "scale_margin": scale_margin}
    losses, gradient = gradients.smooth_margin_loss(size * SCORES, LABELS, 7.0, **options)
    for layer, scores in enumerate(size * SCORES):
        expected = by_autograd(lambda g: functional.smooth_margin_loss(g.T, LABELS, 7.0, **options), scores)
        torch.testing.assert_close((losses[layer], gradient[layer]), expected)


def test_cross_entropy_of_several_layers() -> None:
    losses, gradient = gradients.cross_entropy(SCORES, LABELS)
    for layer, scores in enumerate(SCORES):
        expected = by_autograd(lambda g: functional.cross_entropy(g.T, LABELS), scores)
        torch.testing.assert_close((losses[layer], gradient[layer]), expected)


@pytest.mark.parametrize("per_class", [1, 3])
def test_class_scores_of_several_layers(per_class: int) -> None:
    features = torch.randn(2, 8, 6, dtype=torch.float64)
    prototypes = torch.randn(2, 5, per_class, 6, dtype=torch.float64)
    scores, backward = gradients.class_scores(features, prototypes, 7.0)
    slopes = torch.randn_like(scores)
    found = backward(slopes)
    for layer in range(2):
        inputs = features[layer].clone().requires_grad_(), prototypes[layer].clone().requires_grad_()
        expected = functional.class_scores(*inputs, 7.0).T
        torch.testing.assert_close(scores[layer], expected)
        by_layer = torch.autograd.grad(expected, inputs, slopes[layer])
        torch.testing.assert_close((found[0][layer], found[1][layer]), by_layer)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_scores_of_several_layers(bias: bool) -> None:
    heads = [torch.nn.Linear(6, 5, bias=bias) for _ in range(2)]
    features = torch.randn(2, 8, 6)
    biases = gradients.stacked([head.bias for head in heads]) if bias else None
    scores = gradients.linear_scores(features, gradients.stacked([head.weight for head in heads]), biases)
    for head, h, each in zip(heads, features, scores, strict=True):
        torch.testing.assert_close(each, head(h).T)


def test_project_and_vectors_without_direction() -> None:
    h = torch.randn(4, 6, dtype=torch.float64)
    h[1], h[2] = 0, 1e-9
    slope = torch.randn_like(h)
    _, expected = by_autograd(lambda x: functional.project(x) * slope, h)
    torch.testing.assert_close(gradients.project(h, slope), expected)


@pytest.mark.parametrize("name", list(gradients.SLOPES))
def test_activations(name: str) -> None:
    f = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    slope = torch.arange(1.0, 8.0, dtype=torch.float64)
    activity, expected = by_autograd(lambda x: ACTIVATIONS[name](x) * slope, f)
    torch.testing.assert_close(gradients.activation(name, ACTIVATIONS[name](f), slope), expected)
    assert activity.shape == expected.shape
