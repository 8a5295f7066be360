"""Mono-Forward: every layer projects its activity to class scores and learns by cross-entropy."""

from typing import Any

from hff.methods.families.head import HeadMethod
from hff.methods.method import MethodInfo, register
from hff.modules.heads import Head
from hff.networks import Network


@register
class MonoForward(HeadMethod):
    """Each layer has a matrix M; its scores are M h, and its loss is their cross-entropy.

    Args:
        grid: side of the grid that a map is average-pooled to before the projection; 1 is global pooling, 0
            projects the whole map.
        read_out: the scores of the last layer, or the mean of all, which is equivalent to their sum.
    """

    name = "mono_forward"
    info = MethodInfo(
        title="Mono-Forward",
        paper="Gong, Li and Abdulla 2025, Mono-Forward: Backpropagation-Free Algorithm for Efficient Neural "
        "Network Training Harnessing Local Errors (arXiv 2501.09238)",
        supports="any",
        learning_rate=3e-3,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        grid: int = 4,
        **options: Any,
    ) -> None:
        super().__init__(network, classes, **options)
        for layer in self.layers_with_head:
            self.heads[layer] = Head(self.block(layer).out_shape, grid=grid, channels=classes, bias=False)
