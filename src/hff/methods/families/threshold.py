"""What rules share whose goodness is to exceed a threshold for true labels only: Forward-Forward's loss."""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.methods.families.local import classifier_step
from hff.methods.families.pairs import PairMethod, scale_by_fan_in
from hff.methods.method import ParameterSet, ReadOut, Stage
from hff.modules.labels import LabelEncoding
from hff.networks import Network

Goodness = Literal["sum", "mean"]
Inference = Literal["goodness", "head"]


class ThresholdMethod(PairMethod):
    """The goodness of all layers but the first predicts; a side head on the same layers needs only one pass.

    The side head is linear. In training and prediction alike it sees inputs whose label favours no class.
    """

    def __init__(
        self,
        network: Network,
        classes: int,
        encoding: LabelEncoding,
        *,
        threshold: float,
        inference: Inference,
        head_learning_rate: float,
        goodness: Goodness = "sum",
        sharpness: float = 1.0,
        needs_head: bool = False,
        read_out: ReadOut = "mean",
    ) -> None:
        """threshold: goodness per unit; sharpness: factor of goodness and threshold in the loss; needs_head:
        whether a side head learns even if it does not predict."""
        super().__init__(network, classes, encoding, read_out=read_out)
        scale_by_fan_in(self)
        self.threshold = threshold
        self.sums = goodness == "sum"
        self.sharpness = sharpness
        self.asks_head = inference == "head"
        self.head_learning_rate = head_learning_rate
        self.head: nn.Linear | None = None
        if needs_head or self.asks_head:
            self.head = nn.Linear(sum(self.block(layer).out_features for layer in self._upper), classes)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    @property
    def passes(self) -> int:
        return 1 if self.asks_head else self.classes

    @property
    def read_out_layers(self) -> Sequence[int]:
        if self.asks_head:
            return [len(self.blocks) - 1]
        return self._upper if self.read_out == "mean" else super().read_out_layers

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        groups = super().parameter_groups(stage)
        if self.head is not None:
            groups["head"] = [ParameterSet(list(self.head.parameters()), self.head_learning_rate)]
        return groups

    def goodness(self, layer: int, activity: Tensor) -> Tensor:
        return functional.goodness(activity) if self.sums else functional.mean_goodness(activity)

    def units(self, layer: int) -> int:
        """How many times the threshold is to be counted for a goodness of this block."""
        return self.block(layer).out_features if self.sums else 1

    def pair_loss(self, layer: int, positive: Tensor, negative: Tensor) -> Tensor:
        threshold = self.sharpness * self.threshold * self.units(layer)
        positive, negative = self.sharpness * positive, self.sharpness * negative
        return functional.forward_forward_loss(positive, negative, threshold)

    def wrong(self, batch: Batch, features: Tensor) -> Tensor:
        """A wrong label for each sample [B], where there is a side head that sees these features."""
        return self.negatives(batch)

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if self.head is None:
            yield from super().update(batch, stage)
            return
        with torch.no_grad():
            features = self._neutral_features(batch.x)
            wrong = self.wrong(batch, features)
        yield from self.train_blocks(self.pair(batch, wrong), batch.y, stage, max(stage.blocks) + 1)
        yield "head", classifier_step(self.head, features, batch.y)

    def layer_scores(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        if self.asks_head:
            assert self.head is not None
            yield len(self.blocks) - 1, self.head(self._neutral_features(x))
        else:
            yield from super().layer_scores(x)

    @property
    def _upper(self) -> Sequence[int]:
        """The layers that predict: all but the first, whose goodness follows the label itself closely."""
        depth = len(self.blocks)
        return range(min(1, depth - 1), depth)

    def _neutral_features(self, x: Tensor) -> Tensor:
        """What the side head sees [B, ...]: the upper layers at unit power, with no label favoured."""
        h = self.encoding.neutral(x)
        seen = []
        for layer in range(len(self.blocks)):
            h = self.forward_block(layer, h)
            if layer in self._upper:
                seen.append(functional.unit_power(h).flatten(1))
        return torch.cat(seen, 1)
