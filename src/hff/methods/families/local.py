"""Shared by all local rules: every layer has its own features, scores and loss."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.methods.method import Method, ParameterSet, Stage, group_name
from hff.networks import Network

LayerOrder = Literal["joint", "greedy"]
GreedyEpochs = Literal["each", "shared"]


class LocalMethod(Method):
    """Every layer scores the classes by its own features and learns by its own loss only.

    A subclass defines `features`, `scores` and `loss`. By default the features are the block's activity, the
    scores are the outputs of `heads`, one for each layer, and the loss is their cross-entropy. A `classifier`
    on top is optional. It learns from the output of the last block and gives the scores of the last layer.

    Args:
        layer_order: update all layers with each batch (joint), or train one layer after the other (greedy).
        greedy_epochs: with layer_order greedy, each layer trains for all epochs (each), or the layers share
            them (shared).
    """

    def __init__(
        self,
        network: Network,
        classes: int,
        blocks: Sequence[nn.Module] | None = None,
        *,
        layer_order: LayerOrder = "joint",
        greedy_epochs: GreedyEpochs = "each",
        **options: Any,
    ) -> None:
        super().__init__(network, classes, blocks, **options)
        self.layer_order = layer_order
        self.greedy_epochs = greedy_epochs
        self.heads = nn.ModuleList(nn.Identity() for _ in self.blocks)
        self.head_learning_rate = 1.0
        self.head_weight_decay: float | None = None
        self.classifier: nn.Module | None = None
        self.classifier_learning_rate = 1.0

    def scores(self, layer: int, features: Tensor) -> Tensor:
        """The scores [B, C] of a layer, from its features."""
        scores: Tensor = self.heads[layer](features)
        return scores

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        """The loss [] of a layer, from its features and the batch."""
        return functional.cross_entropy(self.scores(layer, features), batch.y)

    def stages(self, epochs: int) -> list[Stage]:
        """All blocks at once, or one after the other."""
        if self.layer_order == "joint":
            return super().stages(epochs)
        depth = len(self.blocks)
        if self.greedy_epochs == "each":
            spans = [epochs] * depth
        else:
            spans = [epochs // depth + (layer < epochs % depth) for layer in range(depth)]
        return [Stage(f"layer {layer}", (layer,), span) for layer, span in enumerate(spans)]

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        groups = {
            group_name(layer): [
                ParameterSet(list(self.blocks[layer].parameters())),
                ParameterSet(
                    list(self.heads[layer].parameters()), self.head_learning_rate, self.head_weight_decay
                ),
            ]
            for layer in stage.blocks
        }
        if self.classifier is not None and stage.labels:
            learned = list(self.classifier.parameters())
            groups["classifier"] = [ParameterSet(learned, self.classifier_learning_rate)]
        return groups

    def layer_step(self, layer: int, h: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        features = self.features(layer, h)
        loss = self.loss(layer, features, batch)
        loss.backward()
        with torch.no_grad():
            return loss.detach(), self.next_input(layer, features.detach(), h)

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if self.classifier is None or not stage.labels:
            yield from super().update(batch, stage)
            return
        h = yield from self.train_blocks(self.training_inputs(batch), batch, stage, len(self.blocks))
        yield "classifier", classifier_step(self.classifier, h.flatten(1), batch.y)

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        yield from self.scores_of(range(len(self.blocks)), x, depth)

    def forward(self, x: Tensor) -> Tensor:
        """The final scores [B, C]; heads that are not part of the read-out are not computed."""
        return self.combine_scores(dict(self.scores_of(self.read_out_layers, x)))

    def scores_of(self, layers: Sequence[int], x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Yields (layer, scores [B, C]) lazily, in order, for these layers only."""
        top = max(layers)
        classifier = self.classifier if top == len(self.blocks) - 1 else None
        h = x if depth else self.stem(x)
        for layer in range(depth, top + 1):
            features = self.features(layer, h)
            classified = classifier is not None and layer == top
            if layer in layers and not classified:
                yield layer, self.scores(layer, features)
            if layer < top or classified:
                h = self.next_input(layer, features, h)
        if classifier is not None:
            yield top, classifier(h.flatten(1))


def classifier_step(classifier: nn.Module, features: Tensor, y: Tensor) -> Tensor:
    """Calls `backward()` on the cross-entropy of a classifier of detached features [B, ...]; returns it."""
    loss = functional.cross_entropy(classifier(features.detach()), y)
    loss.backward()
    return loss.detach()
