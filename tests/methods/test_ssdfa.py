"""Sparse direct feedback: the classes and weights of each unit, and the product with them."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.dfa import DFA
from hff.methods.ssdfa import SSDFA
from hff.modules.feedback import SparseFeedback
from hff.networks import create_network

CLASSES = 6


def by_hand(feedback: SparseFeedback) -> Tensor:
    """The sparse weights as a matrix [C, units], entry by entry."""
    matrix = torch.zeros(CLASSES, feedback.units)
    for entry in range(feedback.index.shape[0]):
        for unit in range(feedback.units):
            matrix[feedback.index[entry, unit], unit] += feedback.value[entry, unit]
    return matrix


def sparse(method: DFA, layer: int) -> SparseFeedback:
    feedback = method.feedback[f"block{layer}"]
    assert isinstance(feedback, SparseFeedback)
    return feedback


@pytest.mark.parametrize("listens_to", [1, 2, CLASSES])
@pytest.mark.parametrize("replicated", [False, True])
def test_the_signal_is_the_product_with_the_sparse_matrix(listens_to: int, replicated: bool) -> None:
    feedback = SparseFeedback(CLASSES, (5, 3, 4), replicated=replicated, listens_to=listens_to)
    matrix = by_hand(feedback)
    assert ((matrix != 0).sum(0) == listens_to).all()
    error = torch.randn(7, CLASSES)
    expected = error @ matrix
    if replicated:
        expected = expected.view(7, 5, 1, 1).repeat(1, 1, 3, 4)
        matrix = matrix.repeat_interleave(12, 1)
    assert torch.allclose(feedback(error), expected.view(7, 5, 3, 4), atol=1e-6)
    assert torch.equal(feedback.matrix(), matrix)


@pytest.mark.parametrize("listens_to", [1, 3])
def test_distribution_of_classes_and_weights(listens_to: int) -> None:
    units = 20_000
    feedback = SparseFeedback(CLASSES, (units,), listens_to=listens_to)
    assert feedback.index.shape == feedback.value.shape == (listens_to, units)
    assert all(len(set(column)) == listens_to for column in feedback.index.T[:500].tolist())
    shares = F.one_hot(feedback.index, CLASSES).sum((0, 1)) / units
    assert torch.allclose(shares, torch.full((CLASSES,), listens_to / CLASSES), atol=0.02)
    bound = (CLASSES * listens_to) ** 0.25 / units**0.5
    assert 0.99 * bound < feedback.value.abs().max() <= bound
    assert feedback.value.std() == pytest.approx(bound / 3**0.5, rel=0.02)


@pytest.mark.parametrize("table", ["mlp", "cnn"])
def test_with_the_same_feedback_gradients_equal_those_of_dfa(table: str) -> None:
    options: dict[str, dict[str, Any]] = {"mlp": {"widths": (9, 8)}, "cnn": {"channels": (4, 5)}}
    net = create_network(table, (2, 6, 6), CLASSES, **options[table])
    method, dense = create_method("ssdfa", net, CLASSES), create_method("dfa", net, CLASSES)
    assert isinstance(method, SSDFA)
    assert isinstance(dense, DFA)
    dense.blocks.load_state_dict(method.blocks.state_dict())
    for layer in range(2):
        dense.feedback[f"block{layer}"].weight.copy_(by_hand(sparse(method, layer)))
    batch = Batch(torch.randn(6, 2, 6, 6), torch.arange(6), torch.arange(6), (0,))
    for each in (method, dense):
        list(each.update(batch, each.stages(1)[0]))
    for mine, theirs in zip(method.parameters(), dense.parameters(), strict=True):
        assert mine.grad is not None
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)


def test_the_feedback_stores_one_weight_per_unit() -> None:
    method = create_method("ssdfa", create_network("mlp", (5,), CLASSES, widths=(50,)), CLASSES)
    assert isinstance(method, SSDFA)
    assert {name: tuple(b.shape) for name, b in method.feedback.named_buffers()} == {
        "block0.index": (1, 50),
        "block0.value": (1, 50),
    }


@pytest.mark.parametrize("listens_to", [0, CLASSES + 1])
def test_invalid_options_raise_a_user_error(listens_to: int) -> None:
    with pytest.raises(UserError, match="listens_to must lie between 1 and the 6 classes"):
        create_method("ssdfa", create_network("mlp", (5,), CLASSES), CLASSES, listens_to=listens_to)
