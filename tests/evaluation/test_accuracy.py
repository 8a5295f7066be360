"""`layer_accuracy`: every layer and the read-out, in evaluation mode."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from hff.batch import Batch
from hff.errors import UserError
from hff.evaluation import layer_accuracy
from hff.methods import Method, MethodInfo
from hff.networks import create_network


class Oracle(Method):
    """Layer 0 predicts the label, which is the input; layer 1 always predicts class 0."""

    name = "oracle"
    info = MethodInfo("Oracle", "none", "1", needs_negatives=False, gradient_reach=0)

    def __init__(self, classes: int = 3) -> None:
        super().__init__(create_network("mlp", (1,), classes, widths=(2, 2)), classes)
        self.dropout = nn.Dropout(1.0)
        self.saw_gradients = False

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        self.saw_gradients |= torch.is_grad_enabled()
        label = self.dropout(x[:, 0] + 1) - 1
        yield 0, nn.functional.one_hot(label.long().clamp_min(0), self.classes).float()
        yield 1, nn.functional.one_hot(torch.zeros(len(x)).long(), self.classes).float()


def batch(labels: list[int]) -> Batch:
    y = torch.tensor(labels)
    return Batch(y[:, None].float(), y, torch.arange(len(y)), (0, 0))


def test_accuracy_of_each_layer_and_of_the_read_out_over_all_batches() -> None:
    batches = [batch([0, 1, 2]), batch([2])]
    assert layer_accuracy(Oracle(), batches, "cpu") == ({0: 1.0, 1: 0.25}, 0.25)
    method = Oracle()
    method.read_out = "mean"
    batches = [batch([1, 2]), batch([0])]
    # If the two layers disagree, their scores are equal, and the lower class wins.
    assert layer_accuracy(method, batches, "cpu") == ({0: 1.0, 1: 1 / 3}, 1 / 3)


def test_evaluation_mode_without_gradients_is_used_and_the_mode_of_each_module_restored() -> None:
    method = Oracle()
    method.train()
    method.blocks[0].eval()
    assert layer_accuracy(method, [batch([1, 2])], "cpu")[0][0] == 1.0
    assert not method.saw_gradients
    assert method.training
    assert method.dropout.training
    assert not method.blocks[0].training
    assert method.blocks[1].training


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(UserError, match="no samples"):
        layer_accuracy(Oracle(), [], "cpu")
