"""Compares scores and losses with pytorch-metric-learning where the formulas coincide."""

import pytest
import torch
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss, ProxyNCALoss, SoftTripleLoss
from torch import Tensor
from torch.nn import functional as F

from hff import functional as hf

BATCH, CLASSES, DIM = 12, 5, 8


@pytest.fixture
def features() -> Tensor:
    return torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def labels() -> Tensor:
    return torch.randint(CLASSES, (BATCH,), generator=torch.Generator().manual_seed(1))


def unit_prototypes(per_class: int) -> Tensor:
    return hf.project(torch.randn(CLASSES, per_class, DIM, generator=torch.Generator().manual_seed(2)))


def soft_triple(prototypes: Tensor, temperature: float, scale: float = 10.0) -> SoftTripleLoss:
    """The library's loss with our prototypes [C, P, D] as its centers."""
    loss = SoftTripleLoss(
        CLASSES, DIM, centers_per_class=prototypes.shape[1], la=scale, gamma=1 / temperature, margin=0.0
    )
    loss.fc.data = prototypes.flatten(0, 1).T.clone()
    return loss


def loss_and_slope(loss: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    return loss.detach(), torch.autograd.grad(loss, features)[0]


@pytest.mark.parametrize("temperature", [1.0, 10.0, 20.0])
def test_scaled_margin_is_normalized_softmax(features: Tensor, labels: Tensor, temperature: float) -> None:
    prototypes = unit_prototypes(1)
    library = NormalizedSoftmaxLoss(CLASSES, DIM, temperature=1 / temperature)
    library.W.data = prototypes[:, 0].T.clone()
    features.requires_grad_()
    scores = hf.class_scores(hf.project(features), prototypes, temperature)
    ours = hf.smooth_margin_loss(scores, labels, temperature, scale_margin=True)
    torch.testing.assert_close(
        loss_and_slope(ours, features), loss_and_slope(library(features, labels), features)
    )


def test_unscaled_margin_equals_normalized_softmax_at_temperature_one_only(
    features: Tensor, labels: Tensor
) -> None:
    scores = hf.class_scores(hf.project(features), unit_prototypes(1), 1.0)
    library = NormalizedSoftmaxLoss(CLASSES, DIM, temperature=1.0)
    library.W.data = unit_prototypes(1)[:, 0].T.clone()
    expected = library(features, labels)
    torch.testing.assert_close(hf.smooth_margin_loss(scores, labels, 1.0), expected)
    assert not hf.smooth_margin_loss(scores, labels, 10.0).allclose(expected)


@pytest.mark.parametrize("temperature", [2.0, 10.0])
def test_scaled_margin_is_proxy_nca_with_half_the_scale(
    features: Tensor, labels: Tensor, temperature: float
) -> None:
    # Squared distances of unit vectors are 2 - 2 cos, and the 2 cancels in the softmax.
    prototypes = unit_prototypes(1)
    library = ProxyNCALoss(CLASSES, DIM, softmax_scale=temperature / 2)
    library.proxies.data = prototypes[:, 0].clone()
    features.requires_grad_()
    scores = hf.class_scores(hf.project(features), prototypes, temperature)
    ours = hf.smooth_margin_loss(scores, labels, temperature, scale_margin=True)
    torch.testing.assert_close(
        loss_and_slope(ours, features), loss_and_slope(library(features, labels), features)
    )


def test_one_center_per_class_is_soft_triple(features: Tensor, labels: Tensor) -> None:
    prototypes = unit_prototypes(1)
    library = soft_triple(prototypes, temperature=10.0)
    scores = hf.class_scores(hf.project(features), prototypes, 10.0)
    torch.testing.assert_close(scores, library.get_logits(features))
    torch.testing.assert_close(hf.cross_entropy(10.0 * scores, labels), library(features, labels))


@pytest.mark.parametrize("temperature", [1.0, 10.0])
def test_scores_exceed_soft_triple_by_the_entropy_of_its_weights(
    features: Tensor, temperature: float
) -> None:
    # log sum exp(tau s) = tau sum w s + H(w) for w = softmax(tau s): both use the same weights.
    prototypes = unit_prototypes(3)
    scores = hf.class_scores(hf.project(features), prototypes, temperature)
    weights = F.softmax(temperature * hf.similarities(hf.project(features), prototypes), dim=2)
    entropy = torch.special.entr(weights).sum(2)
    assert entropy.max() > 0.5
    library = soft_triple(prototypes, temperature)
    torch.testing.assert_close(scores - entropy / temperature, library.get_logits(features))


def test_many_centers_approach_soft_triple_as_the_temperature_rises(features: Tensor, labels: Tensor) -> None:
    prototypes = unit_prototypes(3)
    library = soft_triple(prototypes, temperature=1e4)
    scores = hf.class_scores(hf.project(features), prototypes, 1e4)
    torch.testing.assert_close(scores, library.get_logits(features), atol=2e-4, rtol=0)
    torch.testing.assert_close(
        hf.cross_entropy(10.0 * scores, labels), library(features, labels), atol=2e-3, rtol=0
    )


def test_equal_centers_differ_from_soft_triple_only_by_a_constant(features: Tensor, labels: Tensor) -> None:
    # Every class gains log(P)/tau, which cancels in the softmax.
    prototypes = unit_prototypes(1).expand(CLASSES, 3, DIM)
    library = soft_triple(prototypes, temperature=10.0)
    scores = hf.class_scores(hf.project(features), prototypes, 10.0)
    torch.testing.assert_close(hf.cross_entropy(10.0 * scores, labels), library(features, labels))
