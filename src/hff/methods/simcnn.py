"""Greedy layer-wise learning: every layer is trained with its own small auxiliary classifier."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hff.errors import UserError
from hff.methods.families.head import HeadMethod
from hff.methods.method import MethodInfo, register
from hff.modules.grid_pool import GridPool
from hff.networks import AffineRow, Network, Shape


@register
class SimCNN(HeadMethod):
    """Each layer and its auxiliary classifier learn by cross-entropy.

    A fully connected layer has a linear classifier. Trained jointly, this is decoupled greedy learning.

    Args:
        auxiliary_layers: number of hidden convolutions of an auxiliary classifier (k - 1 in the paper).
        auxiliary_width: channels of the hidden convolutions; none means the channels of the layer.
        auxiliary_norm: norm of the hidden convolutions and of the pooled map; without hidden convolutions the
            paper uses no norm, but Adam then learned far more slowly in a short trial.
        grid: side of the grid that a map is average-pooled to before the linear part of its classifier.
        read_out: the scores of the last layer, or the mean of all, in which a layer has twice the weight of
            the layer below.
    """

    name = "simcnn"
    info = MethodInfo(
        title="SimCNN",
        paper="Belilovsky, Eickenberg and Oyallon 2019, Greedy Layerwise Learning Can Scale to ImageNet "
        "(arXiv 1812.11446)",
        supports="any",
        learning_rate=3e-3,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        auxiliary_layers: int = 0,
        auxiliary_width: int | None = None,
        auxiliary_norm: Literal["none", "batch"] = "batch",
        grid: int = 2,
        **options: Any,
    ) -> None:
        super().__init__(network, classes, **options)
        if auxiliary_layers < 0 or grid < 1 or (auxiliary_width is not None and auxiliary_width < 1):
            raise UserError(
                "auxiliary_width and grid must be at least 1, and auxiliary_layers must not be negative."
            )
        for layer in self.layers_with_head:
            shape = self.block(layer).out_shape
            if len(shape) == 1:
                self.heads[layer] = nn.Linear(shape[0], classes)
                continue
            hidden = AffineRow("conv", auxiliary_width or shape[0], bias=False, norm=auxiliary_norm)
            self.heads[layer] = auxiliary_classifier(shape, classes, hidden, auxiliary_layers, grid)

    def combine_scores(self, scores: Mapping[int, Tensor]) -> Tensor:
        layers = [layer for layer in self.read_out_layers if layer in scores]
        weighted = torch.stack([2.0**layer * scores[layer] for layer in layers])
        return weighted.sum(0) / sum(2.0**layer for layer in layers)


def auxiliary_classifier(
    shape: Shape, classes: int, hidden: AffineRow, layers: int, grid: int
) -> nn.Sequential:
    """Hidden convolutions of a map [B, *shape], average pooling to a grid, norm, linear scores [B, C]."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        block = hidden.build(shape)
        parts.append(block)
        shape = block.out_shape
    channels, height, width = shape
    cells = (min(grid, height), min(grid, width))
    parts.append(GridPool(cells))
    if hidden.norm == "batch":
        parts.append(nn.BatchNorm2d(channels))
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(channels * cells[0] * cells[1], classes))
