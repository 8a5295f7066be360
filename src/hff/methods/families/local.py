"""What rules share in which every block has a head and a loss of its own."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.methods.method import Method, ParameterSet, ReadOut, Stage, group_name
from hff.networks import Network


class LocalMethod(Method):
    """Every block scores the classes by its own activity, and learns by a loss on it; nothing else learns it.

    A rule fills `heads`, one for each block, or says what else the scores are; it may have a `classifier` on
    top, which learns on what the last block hands on and then answers in place of the last block.
    """

    def __init__(self, network: Network, classes: int, *, read_out: ReadOut = "last") -> None:
        super().__init__(network, classes, read_out=read_out)
        self.heads = nn.ModuleList(nn.Identity() for _ in self.blocks)
        self.head_learning_rate = 1.0
        self.head_weight_decay: float | None = None
        self.classifier: nn.Module | None = None
        self.classifier_learning_rate = 1.0

    def activity(self, layer: int, h: Tensor) -> Tensor:
        """What a block is judged by, given its input [B, *in_shape]: all that it hands on, before dropout."""
        return self.block(layer).activity(h)

    def scores(self, layer: int, activity: Tensor) -> Tensor:
        """The scores [B, C] of an activity [B, *out_shape]: what the block's head says."""
        scores: Tensor = self.heads[layer](activity)
        return scores

    def loss(self, layer: int, activity: Tensor, y: Tensor) -> Tensor:
        """The loss of a block, from its activity [B, *out_shape] and the labels [B]."""
        return functional.cross_entropy(self.scores(layer, activity), y)

    def next_input(self, layer: int, activity: Tensor) -> Tensor:
        """What the next block gets of an activity."""
        out: Tensor = self.block(layer).dropout(activity)
        return out

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

    def layer_step(self, layer: int, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        activity = self.activity(layer, h)
        loss = self.loss(layer, activity, y)
        loss.backward()
        return loss.detach(), self.next_input(layer, activity.detach())

    def forward_block(self, layer: int, h: Tensor) -> Tensor:
        return self.next_input(layer, self.activity(layer, h))

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if self.classifier is None or not stage.labels:
            yield from super().update(batch, stage)
            return
        h, y = self.training_inputs(batch)
        h = yield from self.train_blocks(h, y, stage, len(self.blocks))
        yield "classifier", classifier_step(self.classifier, h.flatten(1), y)

    def layer_scores(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        yield from self.scores_of(range(len(self.blocks)), x)

    def forward(self, x: Tensor) -> Tensor:
        """The final scores [B, C]; heads that have no say in the read-out are not computed."""
        return self.combine_scores(dict(self.scores_of(self.read_out_layers, x)))

    def scores_of(self, layers: Sequence[int], x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yields (layer, scores [B, C]) lazily, in order, for these layers alone."""
        h, top = x, max(layers)
        for layer in range(top + 1):
            activity = self.activity(layer, h)
            if layer in layers:
                yield layer, self._answer(layer, activity)
            if layer < top:
                h = self.next_input(layer, activity)

    def _answer(self, layer: int, activity: Tensor) -> Tensor:
        if self.classifier is None or layer < len(self.blocks) - 1:
            return self.scores(layer, activity)
        scores: Tensor = self.classifier(self.next_input(layer, activity).flatten(1))
        return scores


def classifier_step(classifier: nn.Module, features: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of a classifier on features [B, ...] that learn nothing from it, and its `backward()`."""
    loss = functional.cross_entropy(classifier(features.detach()), y)
    loss.backward()
    return loss.detach()
