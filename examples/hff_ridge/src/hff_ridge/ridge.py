"""Ridge: every layer regresses the label through a matrix of its own."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from hff import Batch, Network
from hff.methods import LocalMethod, MethodInfo


class Ridge(LocalMethod):
    """Each layer lowers the squared error of a linear prediction of the one-hot label.

    Args:
        penalty: weight of the squared norm of the prediction's matrix.
    """

    name = "ridge"
    info = MethodInfo(title="Ridge", paper="an example", supports="any")

    def __init__(self, network: Network, classes: int, *, penalty: float = 1e-4, **options: Any) -> None:
        super().__init__(network, classes, **options)
        self.penalty = penalty
        sizes = (self.block(layer).out_features for layer in range(len(self.blocks)))
        self.heads = nn.ModuleList(nn.Sequential(nn.Flatten(), nn.Linear(n, classes)) for n in sizes)

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        target = F.one_hot(batch.y, self.classes).float()
        error = (self.scores(layer, features) - target).square().sum(1).mean()
        return error + self.penalty * sum(p.square().sum() for p in self.heads[layer].parameters())
