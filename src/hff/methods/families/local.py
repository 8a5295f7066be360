"""Shared by all local rules: every layer has its own features, scores and loss."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from hff import functional, gradients
from hff.batch import Batch
from hff.methods.compiled import Compilable
from hff.methods.early_exit import NarrowingScores
from hff.methods.method import Method, ParameterSet, Stage, group_name
from hff.modules.heads import Head
from hff.networks import AffineBlock, AffineRow, Network
from hff.networks.affine import add_gradient
from hff.networks.block import module_at

LayerOrder = Literal["joint", "greedy"]
GreedyEpochs = Literal["each", "shared"]
Gradients = list[tuple[Tensor, Tensor]]
"""Parameters of a layer with their gradients."""
TOGETHER = 8_000_000
"""Bytes of features and their gradients of adjacent layers that are computed at once."""


class LocalMethod(Compilable, Method):
    """Every layer scores the classes by its own features and learns by its own loss only.

    A subclass defines `features`, `scores` and `loss`. By default the features are the block's activity, the
    scores are the outputs of `heads`, one for each layer, and the loss is their cross-entropy. A `classifier`
    on top is optional. It learns from the output of the last block and gives the scores of the last layer.

    The gradients of a layer are computed by autograd or, for a linear layer without norm, in closed form, if
    the rule has `loss_gradients`. A subclass that changes features, scores or loss uses autograd, unless it
    has its own `has_loss_gradient`.

    Args:
        layer_order: update all layers with each batch (joint), or train one layer after the other (greedy).
        greedy_epochs: with layer_order greedy, each layer trains for all epochs (each), or the layers share
            them (shared).
    """

    judges_preactivation: bool = False
    """Whether the features of an affine layer are its preactivation, not its activity."""

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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        changed = {"features", "scores", "loss", "layer_step"} & vars(cls).keys()
        if changed and "has_loss_gradient" not in vars(cls):
            cls.has_loss_gradient = _has_no_loss_gradient  # type: ignore[method-assign]

    def scores(self, layer: int, features: Tensor) -> Tensor:
        """The scores [B, C] of a layer, from its features."""
        scores: Tensor = module_at(self.heads, layer)(features)
        return scores

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        """The loss [] of a layer, from its features and the batch."""
        return functional.cross_entropy(self.scores(layer, features), batch.y)

    def has_loss_gradient(self, layer: int) -> bool:
        """Whether a layer's loss has gradients in closed form: `loss_gradients`."""
        head = module_at(self.heads, layer)
        return _linear(head) is not None or (isinstance(head, Head) and head.has_closed_form)

    def loss_gradients(
        self, layers: Sequence[int], features: Tensor, batch: Batch
    ) -> tuple[Tensor, Tensor, list[Gradients]]:
        """The losses [L] of layers of the same width, with the gradients of features and of parameters.

        Takes the features [L, B, D], or the map of a single layer [1, B, C, H, W], whose gradient may be that
        of its averages over a grid. The gradients of the parameters that the scores depend on are a list for
        each layer; those of the head of a map are added to `.grad` here.
        """
        if features.dim() > 3:
            scores, backward = cast(Head, module_at(self.heads, layers[0])).recorded(features[0])
            losses, slopes = gradients.cross_entropy(scores.t().unsqueeze(0), batch.y)
            return losses, backward(slopes[0].t()).unsqueeze(0), [[]]
        heads = [cast(nn.Linear, _linear(module_at(self.heads, layer))) for layer in layers]
        weights = gradients.stacked([head.weight for head in heads])
        biases = None if heads[0].bias is None else gradients.stacked([head.bias for head in heads])
        losses, slopes = gradients.cross_entropy(gradients.linear_scores(features, weights, biases), batch.y)
        moved: list[Gradients] = [
            [(head.weight, each)]
            for head, each in zip(heads, torch.bmm(slopes, features).unbind(), strict=True)
        ]
        if biases is not None:
            for head, own, each in zip(heads, moved, slopes.sum(2).unbind(), strict=True):
                own.append((head.bias, each))
        return losses, torch.bmm(slopes.mT, weights), moved

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
        if self._has_closed_form(layer, h):
            steps = self._closed_form_steps([layer], h, batch)
            _, loss = next(steps)
            return loss, _returned(steps)
        block = self.blocks[layer]
        if (
            self.closed_form
            and isinstance(block, AffineBlock)
            and block.has_closed_form(kind=nn.Conv2d)
            and self.judges_activity(layer)
            and not torch.is_autocast_enabled(h.device.type)
        ):
            return self._recorded_step(layer, block, h, batch)
        if self.compiled is None:
            features, loss = self._features_and_loss(layer, h, batch)
        else:
            # The key of a batch would become part of the compiled function.
            inputs = layer, h, replace(batch, key=(), depth=0)
            features, loss = self.compiled(
                group_name(layer), self._features_and_loss, self.parameters(), *inputs
            )
        loss.backward()
        with torch.no_grad():
            return loss.detach(), self.next_input(layer, features.detach(), h)

    def _features_and_loss(self, layer: int, h: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        features = self.features(layer, h)
        return features, self.loss(layer, features, batch)

    @property
    def compiles(self) -> bool:
        return self.info.layer_local and type(self).layer_step is LocalMethod.layer_step

    def judges_activity(self, layer: int) -> bool:
        """Whether the features of a layer are what the activation of its block returns, and nothing else."""
        return type(self).features is Method.features

    def _recorded_step(
        self, layer: int, block: AffineBlock, h: Tensor, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """The same as `layer_step` up to rounding: autograd for the loss at most, in less memory and time."""
        with torch.no_grad(), block.recorded() as recording:
            features = self.features(layer, h)
            assert features is recording.activity
            loss, gradient = self._loss_gradient(layer, features, batch)
            block.backward(recording, gradient)
            return loss, self.next_input(layer, features, h)

    def _loss_gradient(self, layer: int, features: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss [] of a layer, and its gradient with respect to the features or their grid [B, ...]."""
        if self.has_loss_gradient(layer):
            losses, slopes, moved = self.loss_gradients([layer], features.unsqueeze(0), batch)
            for parameter, change in moved[0]:
                add_gradient(parameter, change)
            return losses[0], slopes[0]
        with torch.enable_grad():
            features = features.detach().requires_grad_()
            loss = self.loss(layer, features, batch)
            loss.backward()
        gradient, features.grad = features.grad, None
        assert gradient is not None
        return loss.detach(), gradient

    def train_blocks(
        self, h: Tensor, batch: Batch, stage: Stage, depth: int
    ) -> Generator[tuple[str, Tensor], None, Tensor]:
        layer = batch.depth
        while layer < depth:
            layers = self._closed_form_layers(layer, h, stage, depth)
            if layers:
                h = yield from self._closed_form_steps(layers, h, batch)
            else:
                h = yield from super().train_blocks(h, replace(batch, depth=layer), stage, layer + 1)
            layer += max(1, len(layers))
        return h

    def _has_closed_form(self, layer: int, h: Tensor) -> bool:
        block = self.block(layer)
        return (
            self.closed_form
            and isinstance(block, AffineBlock)
            and block.has_closed_form(self.judges_preactivation)
            and self.has_loss_gradient(layer)
            and not torch.is_autocast_enabled(h.device.type)
        )

    def _closed_form_layers(self, layer: int, h: Tensor, stage: Stage, depth: int) -> Sequence[int]:
        """The layers from this one on that are computed together: alike and small enough, or none."""
        layers: list[int] = []
        first, left = self.affine_block(layer).row, TOGETHER
        for each in range(layer, depth):
            if each not in stage.blocks or not self._has_closed_form(each, h):
                break
            row = self.affine_block(each).row
            left -= 2 * len(h) * row.width * h.element_size()
            if layers and (left < 0 or not _alike(row, first)):
                break
            layers.append(each)
        return layers

    def _closed_form_steps(
        self, layers: Sequence[int], h: Tensor, batch: Batch
    ) -> Generator[tuple[str, Tensor], None, Tensor]:
        """The same as `layer_step` of each layer up to rounding, without autograd.

        Yields like `update`, and returns the input of the next block. The layers have the same width, so that
        their losses and all gradients but those of their weights are computed at once.
        """
        row = self.affine_block(layers[0]).row
        inputs = []
        with torch.no_grad():
            features = h.new_empty(len(layers), len(h), row.width)
            for layer, activity in zip(layers, features.unbind(), strict=True):
                inputs.append(h)
                block = self.affine_block(layer)
                block.write_activity(activity, h, preactivation=self.judges_preactivation)
                h = self.next_input(layer, activity, h)
            losses, slopes, moved = self.loss_gradients(layers, features, batch)
            if not self.judges_preactivation:
                slopes = gradients.activation(row.activation, features, slopes, in_place=True)
            biases = slopes.sum(1)
        values = zip(layers, inputs, slopes.unbind(), biases.unbind(), losses.unbind(), moved, strict=True)
        for layer, x, slope, bias, loss, own in values:
            with torch.no_grad():
                self.affine_block(layer).set_gradients(x, slope, bias)
                for parameter, gradient in own:
                    add_gradient(parameter, gradient)
            yield group_name(layer), loss
        return h

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

    def narrowing_scores(self, layers: Sequence[int], x: Tensor) -> NarrowingScores:
        return self.scores_of(layers, x)

    def scores_of(self, layers: Sequence[int], x: Tensor, depth: int = 0) -> NarrowingScores:
        """Yields (layer, scores [B, C]) lazily, in order, for these layers only.

        If the indices [K] of some samples are sent back, only these are computed from then on.
        """
        top = max(layers)
        classifier = self.classifier if top == len(self.blocks) - 1 else None
        h = x if depth else self.stem(x)
        for layer in range(depth, top + 1):
            features = self.features(layer, h)
            classified = classifier is not None and layer == top
            if layer in layers and not classified:
                kept = yield layer, self.scores(layer, features)
                if kept is not None:
                    features, h = features[kept], h[kept]
            if layer < top or classified:
                h = self.next_input(layer, features, h)
        if classifier is not None:
            yield top, classifier(h.flatten(1))


def _has_no_loss_gradient(self: LocalMethod, layer: int) -> bool:
    return False


def _alike(row: AffineRow, other: AffineRow) -> bool:
    """Whether layers of these rows can be computed together."""
    return row.width == other.width and row.activation == other.activation


def _returned(steps: Generator[Any, None, Tensor]) -> Tensor:
    """What a generator returns; it must not yield any more."""
    try:
        next(steps)
    except StopIteration as end:
        result: Tensor = end.value
        return result
    raise AssertionError("The generator yields more than expected.")


def _linear(head: nn.Module) -> nn.Linear | None:
    """The head as a linear map, if it is one."""
    if isinstance(head, Head):
        return head.linear
    return head if type(head) is nn.Linear else None


def classifier_step(classifier: nn.Module, features: Tensor, y: Tensor) -> Tensor:
    """Calls `backward()` on the cross-entropy of a classifier of detached features [B, ...]; returns it."""
    loss = functional.cross_entropy(classifier(features.detach()), y)
    loss.backward()
    return loss.detach()
