"""SymBa: every layer increases the gap between the goodness of the true label and that of a wrong one."""

from typing import Any, Literal

import torch
from torch import Tensor

from hff import functional
from hff.batch import Batch
from hff.errors import UserError
from hff.methods.families.pairs import GapMethod, scale_by_fan_in
from hff.methods.method import MethodInfo, register
from hff.modules.labels import ClassCodes, LabelEncoding, hard_wrong_labels, one_hot_encoding
from hff.networks import Block, Network


@register
class SymBa(GapMethod):
    """For each sample, the mean square activity of the true label should exceed that of a wrong label.

    Args:
        label: one-hot, or a fixed random binary code of each class, appended to the flattened input (codes).
        code_length: length of a code.
        code_density: share of ones in the codes.
        label_intensity: the value that marks the label; inputs have about unit power.
        inject: append the code to the input only, or to the input of every layer.
        negatives: draw wrong labels uniformly, or in proportion to the square root of their goodness (hard),
            which adds the cost of a prediction to every step.
    """

    name = "symba"
    info = MethodInfo(
        title="SymBa",
        paper="Lee and Song 2023, SymBa: Symmetric Backpropagation-Free Contrastive Learning with "
        "Forward-Forward Algorithm for Optimizing Convergence (arXiv 2303.08418)",
        passes="C",
        needs_negatives=True,
        supports=frozenset({"linear"}),
        learning_rate=3e-3,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        label: Literal["one_hot", "codes"] = "codes",
        code_length: int = 100,
        code_density: float = 0.5,
        label_intensity: float = 1.0,
        inject: Literal["input", "every_layer"] = "input",
        negatives: Literal["uniform", "hard"] = "uniform",
        **options: Any,
    ) -> None:
        every_layer = inject == "every_layer"
        if every_layer and label != "codes":
            raise UserError("inject every_layer needs codes as labels: set label to codes.")
        encoding: LabelEncoding
        if label == "codes":
            encoding = ClassCodes(network.in_shape, classes, code_length, code_density, label_intensity)
        else:
            encoding = one_hot_encoding(network.in_shape, classes, label_intensity)
        blocks = _widened_blocks(network, encoding, code_length) if every_layer else None
        super().__init__(network, classes, encoding, blocks, **options)
        scale_by_fan_in(self)
        self.injected = code_length if every_layer else 0
        self.hard = negatives == "hard"

    def negatives(self, batch: Batch) -> Tensor:
        if not self.hard:
            return super().negatives(batch)
        goodness = self._total_goodness(batch.x)
        return hard_wrong_labels(batch.y, goodness.log() / 2, batch.draw("negatives"))

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        out = super().next_input(layer, features, h)
        if not self.injected:
            return out
        # At unit power, the ratio between activity and code is the same in every layer.
        return torch.cat([functional.unit_power(out), h[:, -self.injected :]], 1)

    @property
    def shares_first_product(self) -> bool:
        return super().shares_first_product and not self.injected

    @torch.no_grad()
    def _total_goodness(self, x: Tensor) -> Tensor:
        """The sum over the layers of the goodness of each class [B, C], in evaluation mode."""
        modes = [block.training for block in self.blocks]
        self.blocks.eval()
        total = torch.stack([scores for _, scores in self.layer_scores(x)]).sum(0)
        for block, mode in zip(self.blocks, modes, strict=True):
            block.train(mode)
        return total


def _widened_blocks(network: Network, encoding: LabelEncoding, code_length: int) -> list[Block]:
    """Blocks that get a code appended to the output of the block below."""
    blocks: list[Block] = []
    shape = encoding.out_shape
    for row in network.rows:
        blocks.append(row.build(shape))
        shape = (blocks[-1].out_features + code_length,)
    return blocks
