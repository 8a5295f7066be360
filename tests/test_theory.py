"""Checks the claims of the paper's appendix: true claims hold, and false ones have a counterexample."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from hff import functional as hf

Loss = Callable[[Tensor, Tensor], Tensor]

LOSSES: dict[str, Loss] = {
    "sum": lambda scores, labels: hf.smooth_margin_loss(scores, labels, 10.0),
    "mean": lambda scores, labels: hf.smooth_margin_loss(scores, labels, 10.0, lse="mean"),
    "scaled": lambda scores, labels: hf.smooth_margin_loss(scores, labels, 10.0, scale_margin=True),
    "cross_entropy": hf.cross_entropy,
}


def double(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.detach().requires_grad_()
    return torch.autograd.grad(function(at), at)[0]


def norm(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors, dim=-1)


LABELS = torch.tensor([0, 1, 2, 3])


# A: gradients of the local objectives (Eqs. 10 and 11).


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("prototypes_per_class", [1, 3])
def test_hff_gradient_is_orthogonal_to_the_features(name: str, prototypes_per_class: int) -> None:
    prototypes = hf.project(gaussian(4, prototypes_per_class, 6))
    features = gaussian(4, 6, seed=1)
    slope = gradient(
        lambda f: LOSSES[name](hf.class_scores(hf.project(f), prototypes, 10.0), LABELS), features
    )
    assert norm(slope).min() > 1e-4
    assert (features * slope).sum(1).abs().max() < 1e-12
    # So a step along it never shortens a feature: |f - s|^2 = |f|^2 + |s|^2.
    torch.testing.assert_close(norm(features - slope) ** 2, norm(features) ** 2 + norm(slope) ** 2)


@pytest.mark.parametrize("activation", [F.relu, F.leaky_relu])
def test_orthogonality_passes_through_homogeneous_activations(activation: Callable[[Tensor], Tensor]) -> None:
    # f sigma'(f) = sigma(f), so <f, grad_f> = <h, grad_h> = 0; for ReLU grad_f is orthogonal to h as well.
    prototypes = hf.project(gaussian(4, 1, 16))
    features = gaussian(4, 16, seed=1)

    def loss(f: Tensor) -> Tensor:
        return LOSSES["sum"](hf.class_scores(hf.project(activation(f)), prototypes, 10.0), LABELS)

    slope = gradient(loss, features)
    assert norm(slope).min() > 1e-4
    assert (features * slope).sum(1).abs().max() < 1e-12
    if activation is F.relu:
        assert (F.relu(features) * slope).sum(1).abs().max() < 1e-12


def test_orthogonality_fails_for_tanh() -> None:
    prototypes = hf.project(gaussian(4, 1, 6))
    features = gaussian(4, 6, seed=1)
    slope = gradient(
        lambda f: LOSSES["sum"](hf.class_scores(hf.project(torch.tanh(f)), prototypes, 10.0), LABELS),
        features,
    )
    assert (features * slope).sum(1).abs().max() > 1e-3


def test_orthogonality_fails_for_raw_similarities() -> None:
    # Two classes, prototypes (1, 0) and (0, 1), f = (2, 1), label 0: the slope is sigmoid(1 - 2) (-1, 1).
    weight = 1 / (1 + math.e)
    slope = gradient(
        lambda f: hf.cross_entropy(hf.class_scores(f, torch.eye(2).double().unsqueeze(1), 1.0), LABELS[:1]),
        double([[2, 1]]),
    )
    torch.testing.assert_close(slope, weight * double([[-1, 1]]))
    assert (slope * double([[2, 1]])).sum().item() == pytest.approx(-weight)


def test_forward_forward_gradient_is_parallel_to_the_features() -> None:
    features = gaussian(1, 6).abs()
    far = double([0.0])
    positive = gradient(lambda f: hf.forward_forward_loss(hf.goodness(F.relu(f)), far, 2.0), features)
    negative = gradient(lambda f: hf.forward_forward_loss(far, hf.goodness(F.relu(f)), 2.0), features)
    assert F.cosine_similarity(positive, features).item() == pytest.approx(-1)
    assert F.cosine_similarity(negative, features).item() == pytest.approx(1)


def test_outside_the_positive_domain_the_forward_forward_gradient_follows_the_activity() -> None:
    features = double([[3, -4]])
    slope = gradient(lambda f: hf.forward_forward_loss(double([0.0]), hf.goodness(F.relu(f)), 2.0), features)
    assert F.cosine_similarity(slope, F.relu(features)).item() == pytest.approx(1)
    assert F.cosine_similarity(slope, features).item() == pytest.approx(0.6)


def test_a_weight_step_over_a_batch_keeps_neither_property() -> None:
    # All samples share W, so the step moves f_j by the slopes of all samples i, weighted with <x_i, x_j>.
    inputs, weights, prototypes = (
        gaussian(4, 5).abs(),
        gaussian(6, 5, seed=1).abs(),
        hf.project(gaussian(4, 1, 6)),
    )
    features = inputs @ weights.T

    def hff(w: Tensor) -> Tensor:
        return LOSSES["sum"](hf.class_scores(hf.project(inputs @ w.T), prototypes, 10.0), LABELS)

    def forward_forward(w: Tensor) -> Tensor:
        length = hf.goodness(inputs @ w.T)
        return hf.forward_forward_loss(length[:2], length[2:], 20.0)

    turned = inputs @ gradient(hff, weights).T
    assert F.cosine_similarity(turned, features).abs().max() > 0.01
    stretched = inputs @ gradient(forward_forward, weights).T
    assert F.cosine_similarity(stretched, features).abs().min() < 0.99


# B: the information bound (Eqs. 12-15). Feature z is one of two, and the label equals it three times in four.

NOISY_FEATURES = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
NOISY_LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0])
MUTUAL_INFORMATION = 1 - (0.25 * math.log2(4) + 0.75 * math.log2(4 / 3))


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0, 10))
def test_information_bound_never_exceeds_the_mutual_information(seed: int, scale: float) -> None:
    scores = gaussian(2, 2, seed=seed)[NOISY_FEATURES]
    assert hf.information_bound(scores, NOISY_LABELS, scale).item() <= MUTUAL_INFORMATION + 1e-6


def test_information_bound_is_tight_at_the_true_posterior() -> None:
    posterior = double([[0.75, 0.25], [0.25, 0.75]])[NOISY_FEATURES]
    assert hf.information_bound(posterior.log(), NOISY_LABELS).item() == pytest.approx(MUTUAL_INFORMATION)


def test_cosines_need_a_scale_to_show_their_information() -> None:
    # Perfect features on a simplex of C = 10: cosines 1 and -1/9. Unscaled, CE = log(1 + 9 exp(-10/9)) nats.
    simplex = hf.simplex_etf(10, 16, torch.Generator().manual_seed(0)).double()
    scores, labels = hf.class_scores(simplex, simplex.unsqueeze(1), 1.0), torch.arange(10)
    unscaled = math.log2(10) - math.log2(1 + 9 * math.exp(-10 / 9))
    assert unscaled < 1.4
    assert hf.information_bound(scores, labels).item() == pytest.approx(unscaled, abs=1e-5)
    assert hf.information_bound(scores, labels, hf.fit_scale(scores, labels)).item() == pytest.approx(
        math.log2(10)
    )


def test_smooth_margin_above_temperature_one_does_not_bound_the_conditional_entropy() -> None:
    # Scores without information: H(y|z) = log 10, but the loss is log(1 + 9^(1/10)) at tau = 10.
    scores, labels = torch.zeros(10, 10, dtype=torch.float64), torch.arange(10)
    loss = hf.smooth_margin_loss(scores, labels, 10.0).item()
    assert loss == pytest.approx(math.log(1 + 9**0.1))
    assert loss < math.log(10)


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), below=st.floats(0.05, 1), above=st.floats(1, 20))
def test_smooth_margin_falls_with_the_temperature_through_cross_entropy(
    seed: int, below: float, above: float
) -> None:
    scores = gaussian(4, 4, seed=seed)
    entropy = hf.cross_entropy(scores, LABELS).item()
    assert hf.smooth_margin_loss(scores, LABELS, below).item() >= entropy - 1e-7
    assert hf.smooth_margin_loss(scores, LABELS, above).item() <= entropy + 1e-7


def test_projection_removes_information_that_only_the_length_carries() -> None:
    # Class 0 is (1, 1) and class 1 is (2, 2): one bit before the projection, zero bits after it.
    features, labels = double([[1, 1], [2, 2]]), torch.tensor([0, 1])
    prototypes = hf.project(gaussian(2, 1, 2))
    bounds = [
        float(hf.information_bound(hf.class_scores(hf.project(features), prototypes, 1.0), labels, scale))
        for scale in (0.0, 0.1, 1.0, 10.0)
    ]
    assert max(bounds) <= 1e-6


# C: the dynamics of the prototypes (Eqs. 16-19).


def test_prototype_gradient_under_cross_entropy() -> None:
    prototypes, feature, temperature, label = (
        hf.project(gaussian(4, 3, 6)),
        hf.project(gaussian(6, seed=1)),
        5.0,
        2,
    )
    slope = gradient(
        lambda v: hf.cross_entropy(hf.class_scores(feature[None], v, temperature), torch.tensor([label])),
        prototypes,
    )
    cosines = prototypes @ feature
    weights = torch.softmax(temperature * cosines, dim=1)
    chances = torch.softmax(hf.class_scores(feature[None], prototypes, temperature)[0], dim=0)
    for c in range(4):
        # Eq. 18 for the own class. The paper omits p_c w_p f for the others, which pushes them away.
        pull = chances[c] - (1 if c == label else 0)
        torch.testing.assert_close(slope[c], pull * weights[c, :, None] * feature)
    # The prototype nearest to the feature moves most.
    assert norm(slope[label]).argmax() == cosines[label].argmax()


def test_prototype_gradient_under_the_smooth_margin() -> None:
    # With sigma = sigmoid(margin): -sigma for the label's class, sigma softmax(tau negatives) for the others.
    prototypes, feature, temperature = hf.project(gaussian(3, 1, 6)), hf.project(gaussian(6, seed=1)), 10.0
    slope = gradient(
        lambda v: hf.smooth_margin_loss(
            hf.class_scores(feature[None], v, temperature), LABELS[:1], temperature
        ),
        prototypes,
    )
    positive, *others = (prototypes[:, 0] @ feature).tolist()
    negatives = double(others)
    sigma = torch.sigmoid(torch.logsumexp(temperature * negatives, 0) / temperature - positive)
    shares = torch.softmax(temperature * negatives, 0)
    torch.testing.assert_close(slope[:, 0], sigma * torch.cat([double([-1]), shares])[:, None] * feature)


def test_learned_prototypes_do_not_tend_to_class_means() -> None:
    # Two classes of one feature each, at 0 and 60 degrees. The force on prototype 0 is q (f0 - f1), at -60
    # degrees. It is pushed away from class 1 and ends 60 degrees from its own class mean, like prototype 1.
    features = double([[1, 0], [0.5, math.sqrt(0.75)]])
    prototypes = features.unsqueeze(1)
    for _ in range(200):
        slope = gradient(
            lambda v: hf.cross_entropy(hf.class_scores(features, v, 10.0), LABELS[:2]), prototypes
        )
        prototypes = hf.project(prototypes - 0.5 * slope)
    angles = torch.rad2deg(torch.acos((prototypes[:, 0] * features).sum(1)))
    torch.testing.assert_close(angles, double([60, 60]), atol=0.01, rtol=0)


def test_averaged_prototypes_tend_to_class_means() -> None:
    features = hf.project(gaussian(2, 50, 6) + 2 * gaussian(2, 1, 6, seed=1))
    sums, counts = features.sum(1, keepdim=True), torch.full((2, 1), 50)
    prototypes = hf.project(gaussian(2, 1, 6, seed=2))
    for _ in range(200):
        prototypes = hf.ema_class_means(prototypes, sums, counts, 0.9)
    torch.testing.assert_close(prototypes, hf.project(sums))


def angles_and_loss_of_training(tangent: bool) -> tuple[float, float, float]:
    """Degrees between prototypes and class means before and after training with Adam, and the final loss."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(50)
    centers = 2 * torch.randn(4, 10, generator=generator)
    inputs = centers[labels] + torch.randn(200, 10, generator=generator)
    weights = (torch.randn(64, 10, generator=generator) / 3).requires_grad_()
    prototypes = hf.project(torch.randn(4, 1, 64, generator=generator)).requires_grad_()

    def features() -> Tensor:
        return hf.project(F.relu(inputs @ weights.T))

    @torch.no_grad()
    def angle() -> float:
        means = hf.project(torch.stack([features()[labels == c].mean(0) for c in range(4)]))
        return float(torch.rad2deg(torch.acos((means * prototypes[:, 0]).sum(1))).mean())

    optimizer = torch.optim.Adam([weights, prototypes], lr=0.02)
    start = angle()
    for _ in range(300):
        optimizer.zero_grad()
        vectors = hf.project(prototypes) if tangent else prototypes
        loss = hf.smooth_margin_loss(hf.class_scores(features(), vectors, 10.0), labels, 10.0)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            prototypes.copy_(hf.project(prototypes))
    return start, angle(), loss.item()


def test_training_turns_prototypes_toward_class_means() -> None:
    # After ReLU, features of different classes are orthogonal at best. The force on a prototype is the
    # feature of its own class minus the mean of the others. It holds the prototype at arccos sqrt(1 - 1/C)
    # from its class mean: 30 degrees for C = 4. Adam converges there if the gradient is tangential.
    start, end, _ = angles_and_loss_of_training(tangent=True)
    assert start > 80
    assert end == pytest.approx(30, abs=3)


def test_adam_on_free_prototypes_converges_elsewhere_at_a_higher_loss() -> None:
    # Renormalized only after the step, a prototype converges where it is parallel to the signs of its slope:
    # with entries of equal size on the units of all classes, at arccos(1 / sqrt(C)) from its class mean.
    _, end, loss = angles_and_loss_of_training(tangent=False)
    assert end == pytest.approx(60, abs=3)
    assert loss > angles_and_loss_of_training(tangent=True)[2] + 0.02


# D: Lipschitz continuity (Eqs. 20-22). All constants are in units of |W|, the largest singular value of W.


def score_distance(
    weights: Tensor, prototypes: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, Tensor]:
    """Differences [B, C] between the scores of two inputs [B, D], and the shorter feature length [B]."""
    features = first @ weights.T, second @ weights.T
    scores = [hf.class_scores(hf.project(f), prototypes, 10.0) for f in features]
    return scores[0] - scores[1], torch.minimum(norm(features[0]), norm(features[1]))


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), prototypes_per_class=st.sampled_from([1, 3]), nearness=st.floats(0.001, 2))
def test_each_score_is_lipschitz_with_the_spectral_norm_over_the_shorter_feature(
    seed: int, prototypes_per_class: int, nearness: float
) -> None:
    weights, prototypes = (
        gaussian(8, 5, seed=seed),
        hf.project(gaussian(4, prototypes_per_class, 8, seed=seed + 1)),
    )
    first = gaussian(32, 5, seed=seed + 2)
    second = first + nearness * gaussian(32, 5, seed=seed + 3)
    difference, shorter = score_distance(weights, prototypes, first, second)
    bound = torch.linalg.matrix_norm(weights, 2) * norm(first - second)
    largest = difference.abs().amax(1)
    assert (largest <= bound / shorter + 1e-9).all()
    # Eq. 22 is the case of features of length 1 or more.
    assert (largest <= bound + 1e-9)[shorter >= 1].all()


def test_normalization_is_not_lipschitz_near_zero() -> None:
    # Contradicts Eq. 21: from (0.01, 0) to (-0.01, 0) the input moves by 0.02, the score by 2.
    identity, prototypes = torch.eye(2).double(), torch.eye(2).double().unsqueeze(1)
    difference, _ = score_distance(identity, prototypes, double([[0.01, 0]]), double([[-0.01, 0]]))
    assert difference.tolist() == [[2, 0]]


def test_the_vector_of_scores_needs_the_norm_of_the_prototypes() -> None:
    # Contradicts Eq. 22 in the Euclidean norm, |W| = |f| = 1: nine equal prototypes move together,
    # sqrt(9) = 3.
    identity = torch.eye(2).double()
    prototypes = double([0, 1]).expand(9, 1, 2)
    first = double([[math.cos(0.01), math.sin(0.01)]])
    second = double([[math.cos(0.01), -math.sin(0.01)]])
    difference, _ = score_distance(identity, prototypes, first, second)
    assert (norm(difference) / norm(first - second)).item() == pytest.approx(3)
    assert torch.linalg.matrix_norm(prototypes[:, 0], 2).item() == pytest.approx(3)


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-3, 1))
def test_raw_similarities_are_lipschitz_everywhere(seed: int, scale: float) -> None:
    weights, prototypes = gaussian(8, 5, seed=seed), hf.project(gaussian(4, 3, 8, seed=seed + 1))
    first, second = scale * gaussian(32, 5, seed=seed + 2), scale * gaussian(32, 5, seed=seed + 3)
    scores = [hf.class_scores(F.relu(x @ weights.T), prototypes, 10.0) for x in (first, second)]
    bound = torch.linalg.matrix_norm(weights, 2) * norm(first - second)
    assert ((scores[0] - scores[1]).abs().amax(1) <= bound + 1e-9).all()


@pytest.mark.parametrize("length", [10.0, 1e3, 1e5])
def test_goodness_is_not_lipschitz(length: float) -> None:
    # (t + 1)^2 - t^2 = 2 t + 1 over a distance of 1.
    values = hf.goodness(double([[length], [length + 1]]))
    assert (values[1] - values[0]).item() == 2 * length + 1


def test_the_forward_forward_gradient_explodes_for_negative_samples_only() -> None:
    # 2 t sigmoid(t^2 - theta) grows like 2 t; 2 t sigmoid(theta - t^2) vanishes beyond the threshold.
    h, low, high = double([[100.0]]), double([0.0]), double([1e4])
    negative = gradient(lambda f: hf.forward_forward_loss(high, hf.goodness(f), 2.0), h)
    positive = gradient(lambda f: hf.forward_forward_loss(hf.goodness(f), low, 2.0), h)
    assert negative.item() == pytest.approx(200)
    assert positive.item() == pytest.approx(0, abs=1e-9)
