"""A learning rule of your own: it states its scores and its loss, and inherits everything else.

python examples/own_method.py
"""

from typing import Any

import torch
from torch import Tensor, nn

import hff
from hff.methods import LocalMethod, MethodInfo, register


@register
class LeastSquares(LocalMethod):
    """Every layer regresses the one-hot label on its activity through a matrix of its own.

    Args:
        penalty: weight of the squared norm of the matrix.
    """

    name = "least_squares"
    info = MethodInfo(title="Least squares", paper="an example", supports="any")

    def __init__(self, network: hff.Network, classes: int, *, penalty: float = 1e-4, **options: Any) -> None:
        super().__init__(network, classes, **options)
        self.penalty = penalty
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Flatten(), nn.Linear(self.block(layer).out_features, classes))
            for layer in range(len(self.blocks))
        )

    def loss(self, layer: int, features: Tensor, batch: hff.Batch) -> Tensor:
        target = nn.functional.one_hot(batch.y, self.classes).float()
        weight = self.heads[layer][1].weight
        error = (self.scores(layer, features) - target).square().sum(1).mean()
        return error + self.penalty * weight.square().sum()


def main() -> float:
    data = hff.load_data("digits")
    network = hff.create_network("mlp", data.in_shape, 10, widths=(128, 128))
    method = hff.create_method("least_squares", network, 10, penalty=1e-4)
    hff.fit(method, data, hff.Settings(epochs=5, batch_size=32))
    result = hff.evaluate(method, data)
    for layer in result.layers:
        print(f"layer {layer.layer}: {layer.accuracy:.1%} of the test digits")
    return result.accuracy


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
