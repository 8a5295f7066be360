"""Forward-Forward's loss: the goodness of a layer should exceed a threshold for true labels only."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.methods.early_exit import NarrowingScores
from hff.methods.families.local import classifier_step
from hff.methods.families.pairs import PairMethod, scale_by_fan_in
from hff.methods.method import ParameterSet, Stage
from hff.modules.labels import LabelEncoding
from hff.networks import Network


class ThresholdMethod(PairMethod):
    """Rules with Forward-Forward's loss; the goodness of the upper layers predicts.

    Args:
        goodness: the sum of squares, or their mean.
        threshold: goodness per unit that separates true from wrong labels.
        sharpness: factor by which the logistic loss scales goodness and threshold.
    """

    def __init__(
        self,
        network: Network,
        classes: int,
        encoding: LabelEncoding,
        *,
        goodness: Literal["sum", "mean"] = "mean",
        threshold: float = 0.5,
        sharpness: float = 20.0,
        **options: Any,
    ) -> None:
        super().__init__(network, classes, encoding, **options)
        scale_by_fan_in(self)
        self.threshold = threshold
        self.sums = goodness == "sum"
        self.sharpness = sharpness

    @property
    def upper_layers(self) -> Sequence[int]:
        """The layers that predict: all but the first, whose goodness mostly reflects the label itself."""
        depth = len(self.blocks)
        return range(min(1, depth - 1), depth)

    @property
    def read_out_layers(self) -> Sequence[int]:
        return self.upper_layers if self.read_out == "mean" else super().read_out_layers

    def goodness(self, layer: int, features: Tensor) -> Tensor:
        return functional.goodness(features) if self.sums else functional.mean_goodness(features)

    def units(self, layer: int) -> int:
        """Factor of the threshold for the goodness of this layer."""
        return self.block(layer).out_features if self.sums else 1

    def pair_loss(self, layer: int, positive: Tensor, negative: Tensor) -> Tensor:
        threshold = self.sharpness * self.threshold * self.units(layer)
        positive, negative = self.sharpness * positive, self.sharpness * negative
        return functional.forward_forward_loss(positive, negative, threshold)


class SideHeadMethod(ThresholdMethod):
    """A linear side head on the upper layers can predict in one pass.

    In training and prediction alike, its inputs have a label that favors no class.

    Args:
        inference: try every label and add up the goodness of the layers, or use the side head in one pass.
        head_learning_rate: factor of the learning rate for the side head.
        read_out: layers whose goodness predicts; the mean leaves out the first layer, as Hinton does.
    """

    def __init__(
        self,
        network: Network,
        classes: int,
        encoding: LabelEncoding,
        needs_head: bool = False,
        *,
        inference: Literal["goodness", "head"] = "goodness",
        head_learning_rate: float = 10.0,
        **options: Any,
    ) -> None:
        """needs_head: whether to train a side head even if it does not predict."""
        super().__init__(network, classes, encoding, **options)
        self.predicts_with_head = inference == "head"
        self.head_learning_rate = head_learning_rate
        self.head: nn.Linear | None = None
        if needs_head or self.predicts_with_head:
            inputs = sum(self.block(layer).out_features for layer in self.upper_layers)
            self.head = nn.Linear(inputs, classes)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    @property
    def passes(self) -> int:
        return 1 if self.predicts_with_head else self.classes

    @property
    def read_out_layers(self) -> Sequence[int]:
        return [len(self.blocks) - 1] if self.predicts_with_head else super().read_out_layers

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        groups = super().parameter_groups(stage)
        if self.head is not None:
            groups["head"] = [ParameterSet(list(self.head.parameters()), self.head_learning_rate)]
        return groups

    def wrong(self, batch: Batch, features: Tensor) -> Tensor:
        """A wrong label for each sample [B], given the inputs of the side head."""
        return self.negatives(batch)

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if self.head is None:
            yield from super().update(batch, stage)
            return
        with torch.no_grad():
            features = self._neutral_features(batch.x)
            wrong = self.wrong(batch, features)
        depth = max(stage.blocks) + 1
        yield from self.train_blocks(self.pair(batch, wrong), batch, stage, depth)
        yield "head", classifier_step(self.head, features, batch.y)

    def narrowing_scores(self, layers: Sequence[int], x: Tensor) -> NarrowingScores:
        return self.scores_of(layers, x) if self.predicts_with_head else super().narrowing_scores(layers, x)

    def scores_of(self, layers: Sequence[int], x: Tensor, depth: int = 0) -> NarrowingScores:
        if self.predicts_with_head:
            assert self.head is not None
            yield len(self.blocks) - 1, self.head(self._neutral_features(x))
        else:
            yield from super().scores_of(layers, x, depth)

    def _neutral_features(self, x: Tensor) -> Tensor:
        """The inputs of the side head [B, ...]: outputs of the upper layers at unit power, neutral label."""
        h = self.encoding.neutral(x)
        found = []
        for layer in range(len(self.blocks)):
            h = self.forward_block(layer, h)
            if layer in self.upper_layers:
                found.append(functional.unit_power(h).flatten(1))
        return torch.cat(found, 1)
