"""Backprop on blocks equals backprop on the same layers written out."""

import torch
import torch.nn.functional as F

from hff.batch import Batch
from hff.methods import create_method
from hff.networks import create_network

CLASSES = 4


def test_gradients_written_out() -> None:
    method = create_method("backprop", create_network("mlp", (5,), CLASSES, widths=(7, 6)), CLASSES)
    x, y = torch.randn(6, 5), torch.arange(6) % CLASSES
    weights = [p.detach().clone().requires_grad_() for p in method.parameters()]
    h = F.relu(x @ weights[0].T + weights[1])
    h = F.relu(h @ weights[2].T + weights[3])
    expected = torch.autograd.grad(F.cross_entropy(h @ weights[4].T + weights[5], y), weights)
    ((group, _),) = method.update(Batch(x, y, torch.arange(6), (0,)), method.stages(1)[0])
    assert group == "network"
    for parameter, gradient in zip(method.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def test_read_out_by_flattening_or_pooling() -> None:
    net = create_network("cnn", (3, 8, 8), CLASSES, channels=(6, 8))
    assert create_method("backprop", net, CLASSES).classifier.in_features == 8 * 2 * 2
    pooled = create_method("backprop", net, CLASSES, head="pool")
    assert pooled.classifier.in_features == 8
    assert pooled(torch.randn(2, 3, 8, 8)).shape == (2, CLASSES)


def test_a_last_row_of_c_units_is_the_classifier() -> None:
    net = create_network("vgg11", (3, 32, 32), CLASSES, width_factor=1 / 32)
    method = create_method("backprop", net, CLASSES)
    assert isinstance(method.classifier, torch.nn.Identity)
    # Logits are the affine map itself: a ReLU would cut them off at zero.
    assert (method(torch.randn(20, 3, 32, 32)) < 0).any()
