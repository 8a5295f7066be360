"""A network of your own: a table of rows, with a new kind of row that builds its own block.

python examples/own_network.py
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import hff
from hff.networks import AffineRow, Block, Row, Shape, register


@dataclass(frozen=True)
class GatedRow(Row):
    """A linear layer whose units are gated: (W x) * sigmoid(V x)."""

    width: int
    kind: str = "gated"

    def build(self, in_shape: Shape) -> Block:
        return GatedBlock(self, in_shape)

    def out_shape(self, in_shape: Shape) -> Shape:
        return (self.width,)


class GatedBlock(Block):
    def __init__(self, row: GatedRow, in_shape: Shape) -> None:
        super().__init__(row, in_shape, row.out_shape(in_shape))
        self.maps = nn.Linear(torch.Size(in_shape).numel(), 2 * row.width)

    def activity(self, x: Tensor) -> Tensor:
        return nn.functional.glu(self.maps(x.flatten(1)), dim=1)


@register
def gated(classes: int, *, widths: tuple[int, ...] = (128, 128)) -> list[Row]:
    """A convolution, then gated layers.

    Args:
        widths: units of each gated layer.
    """
    return [AffineRow("conv", 16), *(GatedRow(width) for width in widths)]


def main() -> dict[str, float]:
    data = hff.load_data("digits")
    accuracy = {}
    for name in ("hff", "mono_forward", "backprop"):
        network = hff.create_network("gated", data.in_shape, 10, widths=(96, 96))
        method = hff.create_method(name, network, 10)
        hff.fit(method, data, hff.Settings(epochs=5, batch_size=32))
        accuracy[name] = hff.evaluate(method, data).accuracy
        print(f"{name}: {accuracy[name]:.1%} of the test digits")
    return accuracy


if __name__ == "__main__":
    main()
