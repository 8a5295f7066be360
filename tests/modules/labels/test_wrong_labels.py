"""A negative never has the true label, for any random draw."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hff.errors import UserError
from hff.modules.labels import hard_wrong_labels, wrong_labels
from hff.randomness import uniform

LARGEST_DRAW = 1 - 2.0**-24
# Includes 1, because a draw may have been rounded up to it.
draws = st.one_of(st.sampled_from([0.0, LARGEST_DRAW, 1.0]), st.floats(0, 1, width=32))
logit = st.one_of(
    st.sampled_from([-math.inf, math.inf, math.nan, -3e38, 3e38, 0.0]), st.floats(-200, 200, width=32)
)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_wrong_labels_are_never_the_true_label(data: st.DataObject) -> None:
    classes = data.draw(st.integers(2, 2000))
    true = torch.tensor([data.draw(st.integers(0, classes - 1)), 0, classes - 1])
    drawn = torch.tensor([data.draw(draws) for _ in true])
    wrong = wrong_labels(true, classes, drawn)
    assert wrong.dtype == torch.int64
    assert (wrong != true).all()
    assert ((wrong >= 0) & (wrong < classes)).all()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_hard_wrong_labels_are_never_the_true_label(data: st.DataObject) -> None:
    classes = data.draw(st.integers(2, 12))
    true = torch.tensor([data.draw(st.integers(0, classes - 1)), 0, classes - 1])
    logits = torch.tensor([[data.draw(logit) for _ in range(classes)] for _ in true])
    drawn = torch.tensor([data.draw(draws) for _ in true])
    wrong = hard_wrong_labels(true, logits, drawn)
    assert wrong.dtype == torch.int64
    assert (wrong != true).all()
    assert ((wrong >= 0) & (wrong < classes)).all()


def test_a_draw_that_was_rounded_up_stays_among_the_labels() -> None:
    assert wrong_labels(torch.tensor([1, 3]), 4, torch.tensor([1.0, 1.0])).tolist() == [3, 2]


def test_wrong_labels_by_hand() -> None:
    # Of 4 classes, true label 1: the others are 0, 2 and 3, a third of the draws each.
    true = torch.full((4,), 1)
    assert wrong_labels(true, 4, torch.tensor([0.0, 0.3, 0.34, 0.9])).tolist() == [0, 0, 2, 3]


def test_with_two_classes_there_is_only_one_choice() -> None:
    true = torch.tensor([0, 1, 0, 1])
    assert wrong_labels(true, 2, torch.tensor([0.0, 0.0, 0.99, 0.99])).tolist() == [1, 0, 1, 0]
    assert hard_wrong_labels(true, torch.randn(4, 2), torch.rand(4)).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("true", [0, 3, 4])
def test_wrong_labels_are_uniform_over_the_other_classes(true: int) -> None:
    count = 40_000
    drawn = uniform(torch.arange(count), 1, "test").squeeze(1)
    shares = torch.bincount(wrong_labels(torch.full((count,), true), 5, drawn), minlength=5) / count
    expected = torch.full((5,), 0.25)
    expected[true] = 0
    assert torch.allclose(shares, expected, atol=0.01)


def test_hard_wrong_labels_by_hand() -> None:
    # Probabilities 1/8, (true: 1/2), 1/8, 1/4 become 1/4, 1/4, 1/2 without the true class.
    logits = torch.tensor([[0.125, 0.5, 0.125, 0.25]]).log().expand(6, -1)
    drawn = torch.tensor([0.0, 0.24, 0.26, 0.49, 0.51, LARGEST_DRAW])
    assert hard_wrong_labels(torch.full((6,), 1), logits, drawn).tolist() == [0, 0, 2, 2, 3, 3]


def test_hard_wrong_labels_follow_the_softmax() -> None:
    count = 40_000
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0])
    drawn = uniform(torch.arange(count), 1, "test").squeeze(1)
    wrong = hard_wrong_labels(torch.full((count,), 2), logits.expand(count, -1), drawn)
    expected = torch.softmax(torch.tensor([0.3, -1.0, -torch.inf, 0.0]), 0)
    assert torch.allclose(torch.bincount(wrong, minlength=4) / count, expected, atol=0.01)


@pytest.mark.parametrize("draw", [0.0, 0.5, LARGEST_DRAW, 1.0])
def test_classes_with_zero_probability_are_not_drawn(draw: float) -> None:
    # Classes 0 and 3 underflow, one at each end. Class 1 is the true class and has by far the highest logit.
    logits = torch.tensor([[-torch.inf, 500.0, 3.0, -200.0]])
    assert hard_wrong_labels(torch.tensor([1]), logits, torch.tensor([draw])).tolist() == [2]


def test_equally_impossible_classes_are_drawn_equally_often() -> None:
    logits = torch.tensor([[7.0, -torch.inf, -torch.inf]]).expand(2, -1)
    assert hard_wrong_labels(torch.tensor([0, 0]), logits, torch.tensor([0.4, 0.6])).tolist() == [1, 2]


def test_a_single_class_raises_an_error() -> None:
    with pytest.raises(UserError, match="at least 2 classes"):
        wrong_labels(torch.zeros(1, dtype=torch.int64), 1, torch.zeros(1))
    with pytest.raises(UserError, match="at least 2 classes"):
        hard_wrong_labels(torch.zeros(1, dtype=torch.int64), torch.zeros(1, 1), torch.zeros(1))
