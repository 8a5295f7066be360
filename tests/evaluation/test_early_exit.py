"""Thresholds of early exit: the statistics, and the guarantee in simulations."""

import math
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from scipy import stats

from hff.data import Batches, DataSet
from hff.errors import UserError
from hff.evaluation.early_exit import (
    PATH,
    Answers,
    EarlyExit,
    allowed_losses,
    calibrate_exit,
    evaluate_exit,
    layer_answers,
    loosest_threshold,
)
from hff.methods import Method, create_method
from hff.networks import create_network
from hff.training import Settings, Trainer, fit


@pytest.mark.parametrize("samples", [1, 59, 600, 2500, 40_000])
@pytest.mark.parametrize("epsilon", [0.001, 0.005, 0.05, 0.5])
@pytest.mark.parametrize("delta", [0.001, 0.05, 0.3])
def test_the_allowed_number_of_losses_is_that_of_the_exact_binomial_test(
    samples: int, epsilon: float, delta: float
) -> None:
    allowed = allowed_losses(samples, epsilon, delta)
    if allowed >= 0:
        assert stats.binomtest(allowed, samples, epsilon, alternative="less").pvalue <= delta
    assert stats.binom.cdf(allowed + 1, samples, epsilon) > delta


def test_the_allowed_number_of_losses_by_hand() -> None:
    # 0.5^4 = 0.0625 is above 0.05. With 5 samples, P(X = 0) = 1/32 and P(X <= 1) = 6/32.
    assert allowed_losses(4, 0.5, 0.05) == -1
    assert allowed_losses(5, 0.5, 0.05) == 0
    assert allowed_losses(5, 0.5, 6 / 32 + 1e-9) == 1
    # Without any loss, ln(0.05) / ln(0.995) = 597.6 samples are needed.
    assert (allowed_losses(597, 0.005, 0.05), allowed_losses(598, 0.005, 0.05)) == (-1, 0)


def test_the_path_goes_from_strict_to_loose() -> None:
    assert list(PATH) == sorted(PATH, reverse=True)
    assert (PATH[0], PATH[-1]) == pytest.approx((1 - 8.3e-7, 0.00247), rel=1e-2)


def test_the_loosest_threshold_by_hand() -> None:
    # The first layer is wrong for the samples 1 and 2, the full network for sample 2.
    answers = Answers(
        [0, 1],
        torch.tensor([[0.99, 0.99], [0.7, 0.95], [0.8, 0.9], [0.2, 0.1]]),
        torch.tensor([[True, True], [False, True], [False, False], [True, True]]),
        torch.tensor([True, True, False, True]),
    )
    # Sample 1 is lost as soon as the threshold is at most 0.7: above that, it leaves at layer 1 or later.
    threshold, lost = loosest_threshold(answers, allowed=0)
    assert threshold == min(each for each in PATH if each > 0.7)
    assert lost == 0
    assert loosest_threshold(answers, allowed=1) == (PATH[-1], 1)
    assert loosest_threshold(answers, allowed=-1) == (None, 0)


def population(samples: int, seed: int) -> Answers:
    """Three layers whose correctness and confidence are correlated by the difficulty of a sample."""
    draw = torch.Generator().manual_seed(seed)
    difficulty = torch.randn(samples, 1, generator=draw)
    own = torch.randn(samples, 4, generator=draw)
    margin = torch.tensor([3.0, 3.4, 3.8, 4.2]) - 1.5 * difficulty + 0.8 * own
    confidence = torch.sigmoid(margin[:, :3] * 1.5)
    # A layer may be sure and wrong.
    right = margin + 0.7 * torch.randn(samples, 4, generator=draw) > 0
    return Answers([0, 1, 2], confidence, right[:, :3], right[:, 3])


def drawn(answers: Answers, count: int, seed: int) -> Answers:
    chosen = torch.randint(len(answers.full_right), (count,), generator=torch.Generator().manual_seed(seed))
    return Answers(answers.layers, *(each[chosen] for each in answers[1:]))


def true_loss(answers: Answers, threshold: float) -> tuple[float, float, float]:
    """The share of lost samples, the loss of accuracy, and the share that the first layer predicts."""
    predicted = answers.full_right.clone()
    for layer in reversed(range(len(answers.layers))):
        sure = answers.confidence[:, layer] >= threshold
        predicted = torch.where(sure, answers.right[:, layer], predicted)
    lost = (answers.full_right & ~predicted).double().mean()
    net = answers.full_right.double().mean() - predicted.double().mean()
    return float(lost), float(net), float((answers.confidence[:, 0] >= threshold).double().mean())


@pytest.mark.parametrize(("epsilon", "delta"), [(0.005, 0.05), (0.02, 0.2)])
def test_the_guarantee_holds_in_simulated_splits(epsilon: float, delta: float) -> None:
    everything = population(20_000, seed=0)
    truth = cache(partial(true_loss, everything))
    trials, samples = 500, 2500
    allowed = allowed_losses(samples, epsilon, delta)
    losses, leaving = [], []
    for seed in range(trials):
        threshold, _ = loosest_threshold(drawn(everything, samples, seed), allowed)
        assert threshold is not None
        lost, net, share = truth(threshold)
        assert net <= lost
        losses.append(lost)
        leaving.append(share)
    violations = sum(lost > epsilon for lost in losses)
    noise = 3 * math.sqrt(trials * delta * (1 - delta))
    assert violations <= trials * delta + noise
    # The guarantee is not vacuous: most samples leave at the first layer, and much of epsilon is used.
    assert sum(leaving) / trials > 0.5
    assert sum(losses) / trials > epsilon / 3


def test_the_guarantee_is_nearly_exhausted_in_the_worst_case() -> None:
    """If the loss jumps from 0 to just above epsilon, the jump is missed with almost probability delta."""
    epsilon, delta, samples, trials = 0.05, 0.2, 1000, 500
    draw = torch.Generator().manual_seed(0)
    allowed = allowed_losses(samples, epsilon, delta)
    exact = stats.binom.cdf(allowed, samples, epsilon * 1.001)
    violations = 0
    for _ in range(trials):
        lost = torch.rand(samples, generator=draw) < epsilon * 1.001
        answers = Answers([0], torch.full((samples, 1), 0.5), ~lost[:, None], torch.ones_like(lost))
        threshold, _ = loosest_threshold(answers, allowed)
        violations += threshold is not None and threshold <= 0.5
    noise = 3 * math.sqrt(exact * (1 - exact) / trials)
    assert delta / 2 < exact <= delta
    assert violations / trials == pytest.approx(exact, abs=noise)


@pytest.fixture(scope="module")
def large_validation(digits: DataSet) -> DataSet:
    """Digits with nearly half of the training split for validation."""
    chosen = torch.arange(len(digits.train))
    return replace(
        digits, train=digits.train.subset(chosen[:600]), validation=digits.train.subset(chosen[600:])
    )


def trained(data: DataSet, **options: Any) -> Method:
    network = create_network("mlp", data.in_shape, 10, widths=(64, 64, 64))
    method = create_method("hff", network, 10, **options)
    fit(method, data, Settings(epochs=8, batch_size=32, learning_rate=3e-3))
    return method


@pytest.fixture(scope="module")
def method(large_validation: DataSet) -> Method:
    return trained(large_validation)


def test_a_calibrated_exit_keeps_the_accuracy_and_predicts_early(
    method: Method, large_validation: DataSet
) -> None:
    early_exit = calibrate_exit(method, large_validation, epsilon=0.02)
    guarantee = early_exit.guarantee
    assert guarantee is not None
    assert guarantee.samples == 693 - math.ceil(0.2 * 693)
    assert 0 <= guarantee.lost <= guarantee.allowed == allowed_losses(guarantee.samples, 0.02, 0.05)
    assert set(early_exit.threshold) == {0, 1}  # type: ignore[arg-type]
    result = evaluate_exit(method, large_validation, early_exit)
    assert result.samples == 360
    assert sum(result.shares.values()) == pytest.approx(1)
    assert result.shares[0] > 0.5
    assert result.accuracy >= result.full_accuracy - 0.02
    assert result.accuracy - result.full_accuracy == pytest.approx((result.gained - result.lost) / 360)
    assert EarlyExit.from_json(early_exit.to_json()) == early_exit


def test_scales_and_thresholds_use_different_validation_samples(
    method: Method, large_validation: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, set[int]] = {}
    for name in ("calibrate", "layer_answers"):
        original = getattr(__import__("hff.evaluation.early_exit", fromlist=[name]), name)

        def spy(*given: Any, name: str = name, original: Any = original, **more: Any) -> Any:
            examples = given[1].validation if name == "calibrate" else given[2].examples
            stored = examples.fetch(torch.arange(len(examples)))
            seen[name] = {hash(each.numpy().tobytes()) for each in stored}
            return original(*given, **more)

        monkeypatch.setattr(f"hff.evaluation.early_exit.{name}", spy)
    calibrate_exit(method, large_validation, epsilon=0.02)
    assert not seen["calibrate"] & seen["layer_answers"]
    assert len(seen["calibrate"]) + len(seen["layer_answers"]) == 693


def test_a_best_layer_chosen_on_the_same_samples_gets_a_stricter_test(large_validation: DataSet) -> None:
    best = trained(large_validation, read_out="best")
    best.best_layer.fill_(2)
    guarantee = calibrate_exit(best, large_validation, epsilon=0.02).guarantee
    assert guarantee is not None
    assert guarantee.allowed == allowed_losses(guarantee.samples, 0.02, 0.05 / 3)


def test_too_few_samples_mean_the_full_network(method: Method, digits: DataSet) -> None:
    with pytest.warns(UserWarning, match=r"115 calibration samples are too few; .* at least 748 samples"):
        early_exit = calibrate_exit(method, digits)
    assert early_exit.threshold == {}
    result = evaluate_exit(method, digits, early_exit)
    assert result.shares == {0: 0, 1: 0, 2: 1}
    assert result.accuracy == result.full_accuracy


def test_what_cannot_be_calibrated_is_refused_in_one_sentence(method: Method, digits: DataSet) -> None:
    with pytest.raises(UserError, match=r"has none; set data\.validation, or give a plain threshold"):
        calibrate_exit(method, replace(digits, validation=None))
    with pytest.raises(UserError, match="epsilon must be between 0 and 1, not 5"):
        calibrate_exit(method, digits, epsilon=5)
    backprop = create_method("backprop", create_network("mlp", digits.in_shape, 10, widths=(8, 8)), 10)
    with pytest.raises(UserError, match="no scores in the layers below its read-out"):
        calibrate_exit(backprop, digits)


def test_early_exit_true_needs_a_calibration_that_training_removes(
    method: Method, large_validation: DataSet
) -> None:
    assert large_validation.test is not None
    x = large_validation.preprocessing(large_validation.test.fetch(torch.arange(20)))
    with pytest.raises(UserError, match=r"set method.early_exit = hff.calibrate_exit\(method, data\)"):
        method.predict(x, early_exit=True)
    method.early_exit = calibrate_exit(method, large_validation, epsilon=0.02)
    assert torch.equal(method.predict(x, early_exit=True), method.predict(x, early_exit=method.early_exit))
    Trainer(method)
    assert method.early_exit is None


def test_the_answers_are_those_of_the_layers(method: Method, digits: DataSet) -> None:
    assert digits.test is not None
    batches = Batches.in_order(digits.test, digits.preprocessing, 100)
    answers = layer_answers(method, EarlyExit({}, {0: 2.0}), batches, "cpu")
    x = digits.preprocessing(digits.test.fetch(torch.arange(360)))
    with torch.no_grad():
        scores = dict(method.layer_scores(x))
    assert answers.layers == [0, 1]
    assert torch.allclose(answers.confidence[:, 0], torch.softmax(2 * scores[0], 1).amax(1), atol=1e-5)
    assert torch.allclose(answers.confidence[:, 1], torch.softmax(scores[1], 1).amax(1), atol=1e-5)
    assert torch.equal(answers.right[:, 1], scores[1].argmax(1) == digits.test.labels)
    assert torch.equal(answers.full_right, scores[2].argmax(1) == digits.test.labels)
