"""Scalable Forward-Forward: an auxiliary convolution on every block gives the goodness of each class."""

from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from hff import functional
from hff.methods.families.head import HeadMethod
from hff.methods.method import MethodInfo, register
from hff.networks import Block, Network


@register
class ScalableForwardForward(HeadMethod):
    """An auxiliary convolution has one channel per class, whose mean square is the goodness of the class.

    Each block learns by the cross-entropy of its goodness, which equals the smooth margin between the true
    class and the LogSumExp of all others. Linear layers have an auxiliary linear map.

    Args:
        kernel: side of the auxiliary kernels; padding preserves the size of maps.
        aux_learning_rate: factor of the learning rate for the auxiliary maps.
        aux_weight_decay: weight decay of the auxiliary maps, which prevents the goodness from exploding.
        read_out: layers whose goodness predicts: the last one, or the mean of all, as in the paper.
    """

    name = "sff"
    info = MethodInfo(
        title="Scalable Forward-Forward",
        paper="Krutsylo 2025, Scalable Forward-Forward Algorithm (arXiv 2501.03176)",
        supports="any",
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        kernel: Literal[1, 3, 5] = 3,
        aux_learning_rate: float = 1.0,
        aux_weight_decay: float = 1e-4,
        **options: Any,
    ) -> None:
        super().__init__(network, classes, **options)
        for layer in self.layers_with_head:
            self.heads[layer] = _auxiliary(self.block(layer), classes, kernel)
        self.head_learning_rate = aux_learning_rate
        self.head_weight_decay = aux_weight_decay

    def scores(self, layer: int, features: Tensor) -> Tensor:
        # Pooling first would be wrong: the mean of squares is not the square of the mean.
        return functional.group_goodness(self.heads[layer](features), self.classes)

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        """The activity at zero mean and unit variance; the auxiliary maps use the activity itself."""
        return super().next_input(layer, F.layer_norm(features, self.block(layer).out_shape), h)


def _auxiliary(block: Block, classes: int, kernel: int) -> nn.Module:
    """The map to one channel or unit per class, initialized so that the goodness is the input's mean square.

    After a ReLU that is a few tenths; a goodness near zero would have a very small gradient at first.
    """
    width = block.out_shape[0]
    auxiliary = (
        nn.Linear(width, classes)
        if len(block.out_shape) == 1
        else nn.Conv2d(width, classes, kernel, padding=kernel // 2)
    )
    nn.init.normal_(auxiliary.weight, std=auxiliary.weight[0].numel() ** -0.5)
    assert auxiliary.bias is not None
    nn.init.zeros_(auxiliary.bias)
    return auxiliary
