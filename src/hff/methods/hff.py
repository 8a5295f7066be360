"""Hyperspherical Forward-Forward: every layer classifies by its angle to class prototypes."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import UserError
from hff.methods.method import (
    GreedyEpochs,
    LayerOrder,
    Method,
    MethodInfo,
    ParameterSet,
    ReadOut,
    Stage,
    group_layer,
    group_name,
    register,
)
from hff.modules.heads import Head
from hff.modules.prototypes import Init, Prototypes, Update
from hff.networks import WITHOUT_GRADIENT, Network


@register
class HFF(Method):
    """Each layer has its own prototypes and its own loss; nothing crosses layers but detached activities.

    Args:
        loss: smooth margin (Eq. 7) or cross-entropy on the scores.
        temperature: tau of the scores and of the margin's LogSumExp.
        lse: whether the LogSumExp over the negatives sums, as printed, or averages.
        scale_margin: multiply the margin by tau, which makes it a softmax at that scale; if not given, where
            only directions are judged.
        loss_on: judge the activity after ("post") or before ("pre") the nonlinearity.
        scale_input: hand the activity on with its length; False hands on its direction only.
        scale_similarity: judge the activity with its length; False judges its direction only; if not given,
            fully connected layers are judged with it and convolutions without.
        project_input: also project the network's input onto the sphere.
        prototypes_per_class: prototypes for each class, the paper's P.
        prototype_update: how prototypes learn: by gradient, as moving class means, by gradient with a moving
            average for prediction (shadow), or by smoothed steps.
        prototype_decay: decay of the moving averages.
        prototype_init: where prototypes start: at random, at class means, or maximally separated.
        prototype_learning_rate: factor of the learning rate for the prototypes.
        aux_channels: width of each convolution's auxiliary projection, or one width for all; 0 for none; the
            network's table if not given.
        grid: side of the grid that a map is average-pooled to before the projection; 1 is the paper's.
        head_hidden: units of a ReLU layer between that pooling and the projection; 0 is the paper's.
        loss_tap: judge a convolution's map before or after max-pooling.
        layer_order: update all layers with each batch (joint), or one layer after the other (greedy).
        greedy_epochs: whether each layer gets all epochs when greedy, or the layers share them.
        read_out: whose scores decide: the last layer's, the best's on validation, the mean, or a layer's.
    """

    name = "hff"
    info = MethodInfo(
        title="Hyperspherical Forward-Forward",
        paper="Sarode, Moser et al. 2026, Hyperspherical Forward-Forward with Prototypical Representations",
        passes="1",
        needs_negatives=False,
        gradient_reach=0,
        learning_rate=3e-3,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        loss: Literal["smooth_margin", "cross_entropy"] = "smooth_margin",
        temperature: float = 10.0,
        lse: Literal["sum", "mean"] = "sum",
        scale_margin: bool | None = None,
        loss_on: Literal["post", "pre"] = "post",
        scale_input: bool = True,
        scale_similarity: bool | None = None,
        project_input: bool = False,
        prototypes_per_class: int = 1,
        prototype_update: Update = "gradient",
        prototype_decay: float = 0.99,
        prototype_init: Init = "random",
        prototype_learning_rate: float = 1.0,
        aux_channels: tuple[int, ...] | None = None,
        grid: int = 4,
        head_hidden: int = 256,
        loss_tap: Literal["map", "pooled"] = "pooled",
        layer_order: LayerOrder = "joint",
        greedy_epochs: GreedyEpochs = "each",
        read_out: ReadOut = "last",
    ) -> None:
        super().__init__(network, classes, read_out=read_out)
        if temperature <= 0:
            raise UserError(f"temperature must be positive, not {temperature}.")
        if loss_on == "post" and any(row.activation in WITHOUT_GRADIENT for row in network.rows):
            raise UserError(
                "The step activation has no gradient, so it needs loss_on pre: add --method.loss_on pre."
            )
        self.loss = loss
        self.temperature = temperature
        self.lse: Literal["sum", "mean"] = lse
        self.scale_margin = scale_margin
        self.loss_on = loss_on
        self.scale_input = scale_input
        self.scale_similarity = scale_similarity
        self.project_input = project_input
        self.prototype_init = prototype_init
        self.prototype_learning_rate = prototype_learning_rate
        self.loss_tap = loss_tap
        self.layer_order = layer_order
        self.greedy_epochs = greedy_epochs
        self.heads = nn.ModuleList()
        self.prototypes = nn.ModuleList()
        widths = _widths_of_heads(network, aux_channels)
        for layer, width in enumerate(widths):
            block = self.block(layer)
            if block.row.kind == "conv":
                shape = block.map_shape if loss_tap == "map" else block.out_shape
                head = Head(shape, grid=grid, channels=width, hidden=head_hidden)
                self.heads.append(head)
                dim = head.dim
            else:
                self.heads.append(nn.Identity())
                dim = block.row.width
            self.prototypes.append(
                Prototypes(
                    classes,
                    dim,
                    prototypes_per_class,
                    update=prototype_update,
                    decay=prototype_decay,
                    init=prototype_init,
                )
            )

    def prepare(self, stage: Stage, batches: Callable[[], Iterable[Batch]]) -> None:
        if self.prototype_init != "class_means":
            return
        sums = {layer: torch.zeros_like(self._prototypes(layer).vectors[:, 0]) for layer in stage.blocks}
        with torch.no_grad():
            for batch in batches():
                for layer, features in self._walk(batch.x, max(stage.blocks)):
                    if layer in sums:
                        sums[layer].index_add_(0, batch.y, functional.project(features()))
        for layer, total in sums.items():
            self._prototypes(layer).set_class_means(total)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        return {
            group_name(layer): [
                ParameterSet([*self.blocks[layer].parameters(), *self.heads[layer].parameters()]),
                ParameterSet(list(self.prototypes[layer].parameters()), self.prototype_learning_rate, 0.0),
            ]
            for layer in stage.blocks
        }

    def layer_step(self, layer: int, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        judge, out = self._forward(layer, h)
        features = judge()
        loss = self._loss(layer, self._scores(layer, features), y)
        loss.backward()
        self._prototypes(layer).observe(features.detach(), y)
        return loss.detach(), self._next_input(out.detach())

    def forward_block(self, layer: int, h: Tensor) -> Tensor:
        return self._next_input(self._forward(layer, h)[1])

    def after_step(self, group: str) -> None:
        layer = group_layer(group)
        assert layer is not None
        self._prototypes(layer).after_step()

    def reduced_buffers(self) -> list[Tensor]:
        return [
            buffer
            for layer in range(len(self.blocks))
            for buffer in self._prototypes(layer).reduced_buffers()
        ]

    def layer_scores(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        for layer, features in self._walk(x, len(self.blocks) - 1):
            yield layer, self._scores(layer, features())

    def forward(self, x: Tensor) -> Tensor:
        if self.read_out != "last":
            return super().forward(x)
        *_, (layer, features) = self._walk(x, len(self.blocks) - 1)
        return self._scores(layer, features())

    def _walk(self, x: Tensor, last: int) -> Iterator[tuple[int, Callable[[], Tensor]]]:
        """Walks up to a layer, yielding what gives the features of each."""
        h = x
        for layer in range(last + 1):
            features, out = self._forward(layer, h)
            yield layer, features
            h = self._next_input(out)

    def _forward(self, layer: int, h: Tensor) -> tuple[Callable[[], Tensor], Tensor]:
        """What gives the judged features [B, D], computed only when called; and what is handed on."""
        block = self.block(layer)
        f = block.preactivation(_direction(h) if layer == 0 and self.project_input else h)
        a = block.activate(f)
        out = block.output(a)

        def features() -> Tensor:
            if self.loss_tap == "map" or block.row.kind == "linear":
                tapped = a if self.loss_on == "post" else f
            else:
                tapped = out if self.loss_on == "post" else block.output(f)
            vector: Tensor = self.heads[layer](tapped)
            return vector if self._judges_length(layer) else functional.project(vector)

        return features, out

    def _scores(self, layer: int, features: Tensor) -> Tensor:
        return functional.class_scores(features, self._prototypes(layer)(), self.temperature)

    def _loss(self, layer: int, scores: Tensor, y: Tensor) -> Tensor:
        if self.loss == "cross_entropy":
            return functional.cross_entropy(scores, y)
        scaled = not self._judges_length(layer) if self.scale_margin is None else self.scale_margin
        return functional.smooth_margin_loss(scores, y, self.temperature, lse=self.lse, scale_margin=scaled)

    def _judges_length(self, layer: int) -> bool:
        if self.scale_similarity is None:
            return self.block(layer).row.kind == "linear"
        return self.scale_similarity

    def _next_input(self, out: Tensor) -> Tensor:
        return out if self.scale_input else _direction(out)

    def _prototypes(self, layer: int) -> Prototypes:
        prototypes = self.prototypes[layer]
        assert isinstance(prototypes, Prototypes)
        return prototypes


def _direction(h: Tensor) -> Tensor:
    """Eq. 5 for what is handed on: a vector gets length 1, a map [B, C, H, W] length 1 a position on average.

    A map of unit length as a whole would shrink with its area until the next layer sees only its own biases.
    """
    positions = h[0, 0].numel() if h.dim() > 2 else 1
    return (functional.project(h.flatten(1)) * math.sqrt(positions)).view_as(h)


def _widths_of_heads(network: Network, aux_channels: tuple[int, ...] | None) -> list[int]:
    """The auxiliary width of each row; fully connected rows have none."""
    rows = network.rows
    if aux_channels is None:
        return [row.aux_channels or 0 for row in rows]
    convolutions = sum(row.kind == "conv" for row in rows)
    widths = list(aux_channels) * (convolutions if len(aux_channels) == 1 else 1)
    if len(widths) != convolutions:
        raise UserError(
            f"aux_channels names {len(aux_channels)} widths, but network {network.name!r} has {convolutions} "
            f"convolutions: give one width for each, or one for all."
        )
    remaining = iter(widths)
    return [next(remaining) if row.kind == "conv" else 0 for row in rows]
