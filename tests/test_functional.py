"""Checks every equation against numbers worked out by hand."""

import math
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hff import functional as hf

LOG2 = math.log(2)
Form = Literal["sum", "mean"]


def double(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_scores(seed: int, batch: int = 6, classes: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(batch, classes, dtype=torch.float64, generator=generator)
    return scores, torch.randint(classes, (batch,), generator=generator)


def gradient_of_margin(scores: Tensor, labels: Tensor, temperature: float, lse: Form = "sum") -> Tensor:
    free = scores.clone().requires_grad_()
    hf.smooth_margin_loss(free, labels, temperature, lse=lse).backward()
    assert free.grad is not None
    return free.grad


def test_goodness_is_the_squared_length() -> None:
    # Eq. 1: 1 + 4 + 4 = 9 and 0 + 9 + 16 = 25.
    assert hf.goodness(double([[1, 2, 2], [0, 3, 4]])).tolist() == [9, 25]


def test_goodness_of_a_map_sums_over_channels_and_pixels() -> None:
    assert hf.goodness(double([[[[1, 2], [3, 4]]], [[[0, 0], [0, -2]]]])).tolist() == [30, 4]


def test_forward_forward_loss_by_hand() -> None:
    # Eq. 2 with theta = 2. Sample 1: g_pos = 2 + log 3, g_neg = 2 - log 3: log(1 + 1/3) + log(1 + 1/3).
    # Sample 2: g_pos = g_neg = 2: log 2 + log 2.
    positive = double([2 + math.log(3), 2])
    negative = double([2 - math.log(3), 2])
    expected = (2 * math.log(4 / 3) + 2 * LOG2) / 2
    assert hf.forward_forward_loss(positive, negative, 2.0).item() == pytest.approx(expected)


def test_forward_forward_loss_stays_finite_for_huge_goodness() -> None:
    # softplus(1e4) = 1e4 where exp would overflow.
    assert hf.forward_forward_loss(torch.tensor([0.0]), torch.tensor([2e4]), 1e4).item() == 2e4


def test_projection_by_hand() -> None:
    # Eq. 5: |(3, 4)| = 5 and |(0, -2)| = 2.
    torch.testing.assert_close(hf.project(double([[3, 4], [0, -2]])), double([[0.6, 0.8], [0, -1]]))


def test_projection_gradient_by_hand() -> None:
    # (I - u u^T) / |h| with u = (0.6, 0.8), |h| = 5: first row (1 - 0.36, -0.48) / 5.
    h = double([3, 4]).requires_grad_()
    hf.project(h)[0].backward()
    assert h.grad is not None
    torch.testing.assert_close(h.grad, double([0.128, -0.096]))


@pytest.mark.parametrize("length", [0.0, 1e-300, 1e-45, 1e-20, 1e-7, 1e-6])
def test_a_vector_without_direction_projects_to_zero_with_zero_gradient(length: float) -> None:
    h = torch.tensor([[length, 0.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    projected = hf.project(h)
    projected[:, 0].sum().backward()
    assert h.grad is not None
    assert projected[0].tolist() == [0, 0]
    assert h.grad[0].tolist() == [0, 0]
    # The other sample in the batch is not affected.
    torch.testing.assert_close(h.grad[1], double([0.128, -0.096]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_projection_at_zero_has_no_nan_in_any_precision(dtype: torch.dtype) -> None:
    h = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
    projected = hf.project(h)
    projected.sum().backward()
    assert h.grad is not None
    assert projected.dtype == dtype
    assert projected.eq(0).all()
    assert h.grad.eq(0).all()


def test_a_vector_just_above_eps_has_a_direction() -> None:
    assert hf.project(double([2e-6, 0])).tolist() == [1, 0]
    assert hf.project(double([0.5, 0]), eps=1.0).tolist() == [0, 0]


def test_half_precision_norm_does_not_overflow() -> None:
    # The length is 80000, more than float16 holds (65504).
    projected = hf.project(torch.tensor([48000.0, 64000.0], dtype=torch.float16))
    torch.testing.assert_close(projected, torch.tensor([0.6, 0.8], dtype=torch.float16))


def test_projection_of_a_pooled_map() -> None:
    # Eq. 23: the channels average to 3 and 4, so the vector is (0.6, 0.8).
    feature_map = double([[[[1, 5], [2, 4]], [[4, 4], [0, 8]]]])
    torch.testing.assert_close(hf.project(feature_map.mean(dim=(2, 3))), double([[0.6, 0.8]]))


def test_auxiliary_convolution_and_pooling_commute() -> None:
    generator = torch.Generator().manual_seed(0)
    feature_map = torch.randn(2, 3, 4, 4, dtype=torch.float64, generator=generator)
    convolution = torch.nn.Conv2d(3, 5, kernel_size=1, dtype=torch.float64)
    pooled_last = convolution(feature_map).mean(dim=(2, 3))
    pooled_first = torch.nn.functional.linear(
        feature_map.mean(dim=(2, 3)), convolution.weight.flatten(1), convolution.bias
    )
    torch.testing.assert_close(hf.project(pooled_first), hf.project(pooled_last))


def test_similarities_by_hand() -> None:
    # (1, 2) with (3, 4): 11; with (1, 0): 1; with (0, 1): 2; with (1, 1): 3.
    prototypes = double([[[3, 4], [1, 0]], [[0, 1], [1, 1]]])
    assert hf.similarities(double([[1, 2]]), prototypes).tolist() == [[[11, 1], [2, 3]]]


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 10.0, 1e3])
def test_one_prototype_per_class_makes_the_score_the_similarity(temperature: float) -> None:
    scores = hf.class_scores(double([[1, 2], [3, 0]]), double([[[3, 4]], [[0, 1]]]), temperature)
    assert scores.tolist() == [[11, 2], [9, 0]]
    # Bit-exact, so nothing was multiplied by the temperature and then divided by it.
    features, prototypes = random_scores(0)[0], random_scores(1)[0].unsqueeze(1)
    assert hf.class_scores(features, prototypes, temperature / 3).equal(
        hf.similarities(features, prototypes).squeeze(2)
    )


def test_scores_of_two_prototypes_by_hand() -> None:
    # Eq. 6, tau = 2, similarities log 2 and log 4: (1/2) log(2^2 + 4^2); class 1: (1/2) log(1 + 1).
    prototypes = double([[[LOG2], [2 * LOG2]], [[0.0], [0.0]]])
    torch.testing.assert_close(
        hf.class_scores(double([[1.0]]), prototypes, 2.0), double([[math.log(20) / 2, LOG2 / 2]])
    )


def test_scores_tend_to_the_nearest_prototype_as_the_temperature_rises() -> None:
    prototypes = double([[[0.5], [0.25]]])
    assert hf.class_scores(double([[1.0]]), prototypes, 1e3).item() == pytest.approx(0.5, abs=1e-12)


def test_scores_at_low_temperature_are_the_average_plus_a_constant_that_diverges() -> None:
    # log(P)/tau + mean: with P = 2 and tau = 1e-3 the constant is 693. It cancels between classes.
    prototypes = double([[[0.5], [0.25]], [[1.0], [0.0]]])
    scores = hf.class_scores(double([[1.0]]), prototypes, 1e-3)[0] - LOG2 / 1e-3
    torch.testing.assert_close(scores, double([0.375, 0.5]), atol=2e-4, rtol=0)


# Powers of two make Eq. 7 exact: the scores are log 8 (for the label), log 2 and log 4.
WORKED = double([[3 * LOG2, LOG2, 2 * LOG2]])
FIRST = torch.tensor([0])


@pytest.mark.parametrize(
    ("temperature", "lse", "scale_margin", "inside"),
    [
        (1.0, "sum", False, (2 + 4) / 8),
        (1.0, "mean", False, (2 + 4) / 2 / 8),
        (2.0, "sum", False, math.sqrt(2**2 + 4**2) / 8),
        (2.0, "mean", False, math.sqrt((2**2 + 4**2) / 2) / 8),
        (2.0, "sum", True, (2**2 + 4**2) / 8**2),
        (2.0, "mean", True, (2**2 + 4**2) / 2 / 8**2),
    ],
)
def test_smooth_margin_by_hand(temperature: float, lse: Form, scale_margin: bool, inside: float) -> None:
    loss = hf.smooth_margin_loss(WORKED, FIRST, temperature, lse=lse, scale_margin=scale_margin)
    assert loss.item() == pytest.approx(math.log(1 + inside))


def test_smooth_margin_is_the_mean_over_the_batch() -> None:
    # Label 0: log(1 + 6/8). Label 2 of the same scores: negatives 8 + 2 against 4: log(1 + 10/4).
    loss = hf.smooth_margin_loss(WORKED.expand(2, 3), torch.tensor([0, 2]), 1.0)
    assert loss.item() == pytest.approx((math.log(1.75) + math.log(3.5)) / 2)


def test_smooth_margin_gradient_by_hand() -> None:
    # tau = 1: sigmoid(log(6/8)) = 6/14, which the negatives share in the ratio 2 to 4.
    gradient = gradient_of_margin(WORKED, FIRST, 1.0)
    torch.testing.assert_close(gradient, double([[-6 / 14, 2 / 14, 4 / 14]]))


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 1e3])
def test_with_two_classes_the_temperature_does_not_matter(temperature: float) -> None:
    loss = hf.smooth_margin_loss(double([[1.0, 3.0]]), FIRST, temperature)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(2)))


def test_a_single_class_raises_an_error() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        hf.smooth_margin_loss(double([[1.0]]), FIRST, 1.0)


@pytest.mark.parametrize("temperature", [1e-3, 1e3])
@pytest.mark.parametrize("lse", ["sum", "mean"])
@pytest.mark.parametrize("scale_margin", [False, True])
def test_smooth_margin_is_safe_at_extreme_temperatures(
    temperature: float, lse: Form, scale_margin: bool
) -> None:
    scores = torch.tensor([[1.0, -1.0, 0.5], [-1.0, 1.0, 1.0]], requires_grad=True)
    labels = torch.tensor([0, 0])
    loss = hf.smooth_margin_loss(scores, labels, temperature, lse=lse, scale_margin=scale_margin)
    loss.backward()
    exact = hf.smooth_margin_loss(
        scores.detach().double(), labels, temperature, lse=lse, scale_margin=scale_margin
    )
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert scores.grad.abs().sum() > 0
    assert loss.item() == pytest.approx(exact.item(), rel=1e-3)


def test_cross_entropy_by_hand() -> None:
    # The label's share is 8 of 8 + 2 + 4 = 14.
    assert hf.cross_entropy(WORKED, FIRST).item() == pytest.approx(math.log(14 / 8))


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 12), spread=st.floats(0.01, 10))
def test_smooth_margin_at_temperature_one_is_cross_entropy(seed: int, classes: int, spread: float) -> None:
    scores, labels = random_scores(seed, classes=classes)
    scores = (spread * scores).requires_grad_()
    margin, entropy = hf.smooth_margin_loss(scores, labels, 1.0), hf.cross_entropy(scores, labels)
    torch.testing.assert_close(margin, entropy, atol=1e-8, rtol=0)
    torch.testing.assert_close(
        torch.autograd.grad(margin, scores)[0], torch.autograd.grad(entropy, scores)[0], atol=1e-8, rtol=0
    )


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), temperature=st.floats(0.01, 100))
def test_scaled_margin_is_cross_entropy_of_scaled_scores(seed: int, temperature: float) -> None:
    scores, labels = random_scores(seed)
    margin = hf.smooth_margin_loss(scores, labels, temperature, scale_margin=True)
    torch.testing.assert_close(margin, hf.cross_entropy(temperature * scores, labels), atol=1e-8, rtol=1e-8)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), temperature=st.floats(0.01, 100))
def test_mean_form_lies_below_the_hard_maximum_and_sum_form_above(seed: int, temperature: float) -> None:
    scores, labels = random_scores(seed, batch=1)
    positive = scores[0, labels[0]]
    negatives = scores[0, torch.arange(5) != labels[0]]
    hard = torch.nn.functional.softplus(negatives.max() - positive).item()
    average = torch.nn.functional.softplus(negatives.mean() - positive).item()
    mean_form = hf.smooth_margin_loss(scores, labels, temperature, lse="mean").item()
    sum_form = hf.smooth_margin_loss(scores, labels, temperature).item()
    assert average - 1e-8 <= mean_form <= hard + 1e-8
    assert hard - 1e-8 <= sum_form


def test_mean_form_tends_to_the_mean_of_the_negatives_at_low_temperature() -> None:
    # Negatives log 2 and log 4 average to 1.5 log 2; against log 8 the margin is -1.5 log 2.
    loss = hf.smooth_margin_loss(WORKED, FIRST, 1e-6, lse="mean")
    assert loss.item() == pytest.approx(math.log(1 + 2**-1.5), abs=1e-6)
    # Its gradient keeps the sigmoid: a sample that is classified correctly counts less.
    weight = 1 / (1 + 2**1.5)
    gradient = gradient_of_margin(WORKED, FIRST, 1e-6, lse="mean")
    torch.testing.assert_close(gradient, weight * double([[-1, 0.5, 0.5]]), atol=1e-6, rtol=0)


def test_sum_form_diverges_at_low_temperature_but_its_gradient_is_that_of_the_mean_margin() -> None:
    # log(C - 1)/tau with C = 3, plus the mean margin -1.5 log 2; the sigmoid is saturated at 1.
    for temperature in (1e-2, 1e-3, 1e-4):
        loss = hf.smooth_margin_loss(WORKED, FIRST, temperature).item()
        assert loss == pytest.approx(LOG2 / temperature - 1.5 * LOG2, abs=temperature)
    gradient = gradient_of_margin(WORKED, FIRST, 1e-4)
    torch.testing.assert_close(gradient, double([[-1, 0.5, 0.5]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("lse", ["sum", "mean"])
def test_high_temperature_is_the_hard_maximum(lse: Form) -> None:
    # The larger of log 2 and log 4 against log 8: log(1 + 4/8). Only it gets gradient, sigmoid(-log 2) = 1/3.
    loss = hf.smooth_margin_loss(WORKED, FIRST, 1e4, lse=lse)
    assert loss.item() == pytest.approx(math.log(1.5), abs=1e-4)
    gradient = gradient_of_margin(WORKED, FIRST, 1e4, lse=lse)
    torch.testing.assert_close(gradient, double([[-1, 0, 1]]) / 3, atol=1e-4, rtol=0)


def test_ema_by_hand() -> None:
    # Class 0: 0.5 (1, 0) + 0.5 (0, 1), renormalized: the length 7 of the sum does not matter.
    # Class 1: 0.5 (0, 1) + 0.5 (0.6, 0.8) = (0.3, 0.9), of length sqrt(0.9).
    prototypes = double([[[1, 0]], [[0, 1]]])
    sums = double([[[0, 7]], [[3, 4]]])
    moved = hf.ema_class_means(prototypes, sums, torch.tensor([[9], [6]]), 0.5)
    half, root = math.sqrt(0.5), math.sqrt(0.9)
    torch.testing.assert_close(moved, double([[[half, half]], [[0.3 / root, 0.9 / root]]]))


def test_ema_keeps_prototypes_without_samples_or_without_direction() -> None:
    unit = hf.project(double([0.3, -0.7]))
    prototypes = torch.stack([unit, unit, unit]).unsqueeze(1)
    sums = torch.stack([double([5, 5]), -4 * unit, torch.zeros_like(unit)]).unsqueeze(1)
    # Class 0 got no sample; class 1's mean is exactly opposite, so half and half cancel.
    moved = hf.ema_class_means(prototypes, sums, torch.tensor([[0], [4], [4]]), 0.5)
    assert moved[:2].equal(prototypes[:2])
    # The features of class 2 cancel each other, and the rest of the average points like the prototype.
    torch.testing.assert_close(moved[2], prototypes[2])


def test_ema_decay_limits() -> None:
    prototypes, sums = double([[[1, 0], [0, 1]]]), double([[[0, 3], [-2, 0]]])
    counts = torch.tensor([[3, 2]])
    torch.testing.assert_close(hf.ema_class_means(prototypes, sums, counts, 0.0), hf.project(sums))
    torch.testing.assert_close(hf.ema_class_means(prototypes, sums, counts, 1.0), prototypes)


@pytest.mark.parametrize(("classes", "dim"), [(2, 1), (2, 5), (3, 2), (4, 3), (10, 9), (10, 10), (10, 64)])
def test_simplex_has_unit_rows_and_equal_angles(classes: int, dim: int) -> None:
    vectors = hf.simplex_etf(classes, dim, torch.Generator().manual_seed(1))
    expected = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1.0)
    assert vectors.shape == (classes, dim)
    torch.testing.assert_close(vectors @ vectors.T, expected, atol=1e-6, rtol=0)


def test_the_generator_rotates_the_simplex() -> None:
    first = hf.simplex_etf(5, 8, torch.Generator().manual_seed(1))
    assert first.equal(hf.simplex_etf(5, 8, torch.Generator().manual_seed(1)))
    assert not first.allclose(hf.simplex_etf(5, 8, torch.Generator().manual_seed(2)))


def test_an_impossible_simplex_raises_an_error() -> None:
    with pytest.raises(ValueError, match="No simplex of 10 prototypes exists in 8 dimensions"):
        hf.simplex_etf(10, 8)
    with pytest.raises(ValueError, match="at least 2 classes"):
        hf.simplex_etf(1, 8)


BALANCED = torch.arange(4).repeat(2)


def test_uniform_scores_carry_no_information() -> None:
    # H(y) = log2 4 = 2 bits, cross-entropy = log2 4.
    assert hf.information_bound(torch.zeros(8, 4), BALANCED).item() == pytest.approx(0, abs=1e-6)


def test_confident_correct_scores_carry_all_the_information() -> None:
    scores = 100 * torch.eye(4)[BALANCED]
    assert hf.information_bound(scores, BALANCED).item() == pytest.approx(2)


def test_information_bound_by_hand() -> None:
    # Each label gets probability 3/4 of two classes: 1 - log2(4/3) bits. Scale 2 restores halved scores.
    labels = torch.tensor([0, 0, 1, 1])
    scores = math.log(3) * torch.eye(2, dtype=torch.float64)[labels]
    assert hf.information_bound(scores, labels).item() == pytest.approx(1 - math.log2(4 / 3))
    assert hf.information_bound(scores / 2, labels, 2.0).item() == pytest.approx(1 - math.log2(4 / 3))


def test_information_bound_uses_the_frequencies_of_the_labels() -> None:
    # H(3/4, 1/4) = 2 - (3/4) log2 3 bits, minus 1 bit for uniform scores: below zero.
    bound = hf.information_bound(torch.zeros(4, 2, dtype=torch.float64), torch.tensor([0, 0, 0, 1]))
    assert bound.item() == pytest.approx(1 - 0.75 * math.log2(3))


def test_fitted_scale_by_hand() -> None:
    # Three of four labels agree with the score, so the fitted probability is 3/4: scale * (log 3)/4 = log 3.
    scores = double([[math.log(3) / 4, 0.0]]).expand(4, 2)
    assert hf.fit_scale(scores, torch.tensor([0, 0, 0, 1])) == pytest.approx(4)


def test_no_other_scale_beats_the_fitted_one() -> None:
    scores, labels = random_scores(3, batch=200)
    scores = scores + torch.nn.functional.one_hot(labels, 5)
    scale = hf.fit_scale(scores, labels)
    best = hf.information_bound(scores, labels, scale)
    for factor in (0.0, 0.5, 0.99, 1.01, 2.0):
        assert hf.information_bound(scores, labels, factor * scale) < best


def test_doubt_keeps_the_scale_of_separable_scores_modest() -> None:
    # Two classes, margin 1: softmax(-s) = doubt / 2 gives s = log(2 / doubt - 1), here log 9.
    scores, labels = torch.eye(2), torch.arange(2)
    assert hf.fit_scale(scores, labels, doubt=0.2) == pytest.approx(math.log(9))


def test_misleading_scores_get_scale_zero() -> None:
    assert hf.fit_scale(-torch.eye(3), torch.arange(3)) == 0
    assert hf.fit_scale(torch.ones(3, 3), torch.arange(3)) == 0


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3])
def test_separable_scores_get_a_finite_scale(spread: float) -> None:
    scores, labels = spread * torch.eye(3), torch.arange(3)
    scale = hf.fit_scale(scores, labels)
    assert math.isfinite(scale)
    assert hf.information_bound(scores, labels, scale).item() == pytest.approx(math.log2(3))
