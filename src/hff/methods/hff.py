"""Hyperspherical Forward-Forward: every layer classifies by its angle to class prototypes."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.families.local import LocalMethod
from hff.methods.method import MethodInfo, ParameterSet, Stage, group_layer, group_name, register
from hff.modules.heads import Head
from hff.modules.prototypes import Init, Prototypes, Update
from hff.networks import AffineBlock, AffineRow, Network


@register
class HFF(LocalMethod):
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
    """

    name = "hff"
    info = MethodInfo(
        title="Hyperspherical Forward-Forward",
        paper="Sarode, Moser et al. 2026, Hyperspherical Forward-Forward with Prototypical Representations",
        passes="1",
        needs_negatives=False,
        gradient_reach=0,
        supports="any",
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
        **options: Any,
    ) -> None:
        super().__init__(network, classes, **options)
        require(temperature > 0, f"temperature must be positive, not {temperature}.")
        if loss_on == "post" and network.activations_without_gradient:
            raise UserError(
                "The step activation has no gradient, so it needs loss_on pre: add --method.loss_on pre."
            )
        others = {row.kind for row in network.rows if not isinstance(row, AffineRow)}
        if others and (loss_on == "pre" or loss_tap == "map"):
            raise UserError(
                f"loss_on pre and loss_tap map need conv and linear layers, but network {network.name!r} has "
                f"{' and '.join(sorted(others))} layers; leave these options at post and pooled."
            )
        self.loss_name = loss
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
        self.heads = nn.ModuleList()
        self.prototypes = nn.ModuleList()
        for layer, width in enumerate(_widths_of_heads(network, aux_channels)):
            block = self.block(layer)
            dim = block.out_features
            self.heads.append(nn.Identity())
            if len(block.out_shape) == 3:
                tapped = isinstance(block, AffineBlock) and loss_tap == "map"
                shape = self.affine_block(layer).map_shape if tapped else block.out_shape
                head = Head(shape, grid=grid, channels=width, hidden=head_hidden)
                self.heads[layer], dim = head, head.dim
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

    @property
    def _layers(self) -> range:
        return range(len(self.blocks))

    def stem(self, x: Tensor) -> Tensor:
        return _direction(x) if self.project_input else x

    def features(self, layer: int, h: Tensor) -> Tensor:
        """The activity, or the preactivation: of a linear layer [B, D], of a convolution [B, C, H, W]."""
        block = self.block(layer)
        if not isinstance(block, AffineBlock):
            return block.activity(h)
        f = block.preactivation(h)
        if self.loss_on == "pre":
            return f
        return block.output(block.activate(f)) if self._judges_output(layer) else block.activate(f)

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        block = self.block(layer)
        if not isinstance(block, AffineBlock):
            out = super().next_input(layer, features, h)
        elif self.loss_on == "pre":
            out = block.output(block.activate(features))
        else:
            out = features if self._judges_output(layer) else block.output(features)
        return out if self.scale_input else _direction(out)

    def scores(self, layer: int, features: Tensor) -> Tensor:
        return self._class_scores(layer, self._vector(layer, features))

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        vector = self._vector(layer, features)
        scores = self._class_scores(layer, vector)
        self._prototypes(layer).observe(vector.detach(), batch.y)
        if self.loss_name == "cross_entropy":
            return functional.cross_entropy(scores, batch.y)
        scaled = not self._judges_length(layer) if self.scale_margin is None else self.scale_margin
        return functional.smooth_margin_loss(
            scores, batch.y, self.temperature, lse=self.lse, scale_margin=scaled
        )

    def prepare(self, stage: Stage, batches: Callable[[], Iterable[Batch]]) -> None:
        if self.prototype_init != "class_means":
            return
        sums = {layer: torch.zeros_like(self._prototypes(layer).vectors[:, 0]) for layer in stage.blocks}
        with torch.no_grad():
            for batch in batches():
                h = self.stem(batch.x)
                for layer in range(max(stage.blocks) + 1):
                    features = self.features(layer, h)
                    if layer in sums:
                        direction = functional.project(self._vector(layer, features))
                        sums[layer].index_add_(0, batch.y, direction)
                    h = self.next_input(layer, features, h)
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

    def after_step(self, group: str) -> None:
        layer = group_layer(group)
        assert layer is not None
        self._prototypes(layer).after_step()

    def reduced_buffers(self) -> list[Tensor]:
        return [buffer for layer in self._layers for buffer in self._prototypes(layer).reduced_buffers()]

    def _vector(self, layer: int, features: Tensor) -> Tensor:
        """The vector [B, D] that is compared with the prototypes."""
        block = self.block(layer)
        if isinstance(block, AffineBlock) and self.loss_on == "pre" and self._judges_output(layer):
            features = block.output(features)
        vector: Tensor = self.heads[layer](features)
        return vector if self._judges_length(layer) else functional.project(vector)

    def _class_scores(self, layer: int, vector: Tensor) -> Tensor:
        return functional.class_scores(vector, self._prototypes(layer)(), self.temperature)

    def _judges_output(self, layer: int) -> bool:
        """Whether a convolution is judged after its max-pooling."""
        return self.loss_tap == "pooled" and len(self.block(layer).out_shape) == 3

    def _judges_length(self, layer: int) -> bool:
        if self.scale_similarity is None:
            return len(self.block(layer).out_shape) == 1
        return self.scale_similarity

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
    if aux_channels is None:
        return [row.aux_channels or 0 for row in network.rows]
    maps = [len(shape) == 3 for shape in network.out_shapes()]
    convolutions = sum(maps)
    widths = list(aux_channels) * (convolutions if len(aux_channels) == 1 else 1)
    if len(widths) != convolutions:
        raise UserError(
            f"aux_channels names {len(aux_channels)} widths, but network {network.name!r} has {convolutions} "
            f"convolutions: give one width for each, or one for all."
        )
    remaining = iter(widths)
    return [next(remaining) if is_map else 0 for is_map in maps]
