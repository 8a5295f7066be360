"""Hyperspherical Forward-Forward: every layer classifies by similarity to class prototypes."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from hff import functional, gradients
from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.families.head import HeadMethod
from hff.methods.families.local import Gradients
from hff.methods.method import MethodInfo, ParameterSet, Stage, group_layer, group_name, register
from hff.modules.heads import Head
from hff.modules.prototypes import Init, Prototypes, Update
from hff.networks import AffineBlock, AffineRow, Network
from hff.networks.block import module_at


@register
class HFF(HeadMethod):
    """Each layer has its own prototypes and its own loss; layers exchange detached activities only.

    Args:
        loss: smooth margin (Eq. 7) or cross-entropy of the scores.
        temperature: tau in the scores and in the margin's LogSumExp.
        lse: sum in the LogSumExp over the negatives, as in the paper, or average.
        scale_margin: whether to multiply the margin by tau, as in a softmax at that scale; by default, only
            in layers whose scores use directions.
        loss_on: compute scores from the activity after (post) or before (pre) the nonlinearity.
        scale_input: the next layer gets the activity with its length (true) or its direction only (false).
        scale_similarity: scores use the activity with its length (true) or its direction only (false); by
            default, fully connected layers use the length and convolutions do not.
        project_input: whether to project the network's input onto the sphere.
        prototypes_per_class: number of prototypes of each class (P in the paper).
        prototype_update: how prototypes learn: by gradient, as moving class means, by gradient with a moving
            average for prediction (shadow), or by smoothed steps.
        prototype_decay: decay of the moving averages.
        prototype_init: initial prototypes: random, class means, or maximally separated.
        prototype_learning_rate: factor of the learning rate for the prototypes.
        aux_channels: width of the auxiliary projection of each convolution, or one width for all; 0 means
            none; by default, the widths of the network.
        grid: side of the grid that a map is average-pooled to before the projection; 1 in the paper.
        head_hidden: units of a ReLU layer between that pooling and the projection; 0 in the paper.
        loss_tap: compute scores of a convolution from its map before (map) or after (pooled) max-pooling.
    """

    name = "hff"
    info = MethodInfo(
        title="Hyperspherical Forward-Forward",
        paper="Sarode, Moser et al. 2026, Hyperspherical Forward-Forward with Prototypical Representations",
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
        head_hidden: int = 128,
        loss_tap: Literal["map", "pooled"] = "pooled",
        **options: Any,
    ) -> None:
        super().__init__(network, classes, **options)
        require(temperature > 0, f"temperature must be positive, not {temperature}.")
        if loss_on == "post" and network.activations_without_gradient:
            raise UserError("The step activation has no gradient; set loss_on to pre (--method.loss_on pre).")
        others = {row.kind for row in network.rows if not isinstance(row, AffineRow)}
        if others and (loss_on == "pre" or loss_tap == "map"):
            raise UserError(
                f"loss_on pre and loss_tap map need conv and linear layers, but network {network.name!r} has "
                f"{' and '.join(sorted(others))} layers; use loss_on post and loss_tap pooled."
            )
        self.loss_name = loss
        self.temperature = temperature
        self.lse: Literal["sum", "mean"] = lse
        self.scale_margin = scale_margin
        self.loss_on = loss_on
        self.judges_preactivation = loss_on == "pre"
        self.scale_input = scale_input
        self.scale_similarity = scale_similarity
        self.project_input = project_input
        self.prototype_init = prototype_init
        self.prototype_learning_rate = prototype_learning_rate
        self.loss_tap = loss_tap
        maps = [len(shape) == 3 for shape in network.out_shapes()]
        self._pooled_maps = [is_map and loss_tap == "pooled" for is_map in maps]
        self._lengths = [not is_map if scale_similarity is None else scale_similarity for is_map in maps]
        self.heads = nn.ModuleList()
        self.prototypes = nn.ModuleList()
        for layer, width in enumerate(_widths_of_heads(network, aux_channels)):
            block = self.block(layer)
            dim = block.out_features
            self.heads.append(nn.Identity())
            if layer not in self.layers_with_head:
                self.prototypes.append(nn.Identity())
                continue
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
        return block.output_from(f) if self._uses_pooled_map(layer) else block.activate(f)

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        block = self.block(layer)
        if not isinstance(block, AffineBlock):
            out = super().next_input(layer, features, h)
        elif self.loss_on == "pre":
            out = block.output_from(features)
        else:
            out = features if self._uses_pooled_map(layer) else block.output(features)
        return out if self.scale_input else _direction(out)

    def scores(self, layer: int, features: Tensor) -> Tensor:
        return self._class_scores(layer, self._vector(layer, features))

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        vector = self._vector(layer, features)
        scores = self._class_scores(layer, vector)
        self._prototypes(layer).observe(vector.detach(), batch.y)
        if self.loss_name == "cross_entropy":
            return functional.cross_entropy(scores, batch.y)
        return functional.smooth_margin_loss(
            scores, batch.y, self.temperature, lse=self.lse, scale_margin=self._scales_margin(layer)
        )

    def judges_activity(self, layer: int) -> bool:
        # The features of a pooled map are what is left after dropout.
        kept = not self._uses_pooled_map(layer) or self.block(layer).dropout.p == 0
        return kept and self.loss_on == "post" and type(self).features is HFF.features

    def has_loss_gradient(self, layer: int) -> bool:
        head = module_at(self.heads, layer)
        return isinstance(head, nn.Identity) or cast(Head, head).has_closed_form

    def loss_gradients(
        self, layers: Sequence[int], features: Tensor, batch: Batch
    ) -> tuple[Tensor, Tensor, list[Gradients]]:
        head = module_at(self.heads, layers[0])
        lengths, head_backward = features, None
        if isinstance(head, Head):
            vector, head_backward = head.recorded(features[0])
            lengths = vector.unsqueeze(0)
        uses_length = self.uses_length(layers[0])
        vectors = lengths if uses_length else functional.project(lengths)
        prototypes = [self._prototypes(layer) for layer in layers]
        stacked = gradients.stacked([each.vectors for each in prototypes])
        scores, backward = gradients.class_scores(vectors, stacked, self.temperature)
        if self.loss_name == "cross_entropy":
            losses, slopes = gradients.cross_entropy(scores, batch.y)
        else:
            losses, slopes = gradients.smooth_margin_loss(
                scores, batch.y, self.temperature, lse=self.lse, scale_margin=self._scales_margin(layers[0])
            )
        slopes, gradients_of_prototypes = backward(slopes)
        moved: list[Gradients] = []
        for each, directions, gradient in zip(
            prototypes, vectors.unbind(), gradients_of_prototypes.unbind(), strict=True
        ):
            each.observe(directions, batch.y)
            moved.append([(each.vectors, gradient)] if isinstance(each.vectors, nn.Parameter) else [])
        if not uses_length:
            slopes = gradients.project(lengths, slopes)
        if head_backward is not None:
            slopes = head_backward(slopes[0]).unsqueeze(0)
        return losses, slopes, moved

    def prepare(self, stage: Stage, batches: Callable[[], Iterable[Batch]]) -> None:
        if self.prototype_init != "class_means":
            return
        layers = [layer for layer in stage.blocks if layer in self.layers_with_head]
        for layer, total in self._class_sums(layers, batches()).items():
            self._prototypes(layer).set_class_means(total)

    @torch.no_grad()
    def _class_sums(self, layers: Sequence[int], batches: Iterable[Batch]) -> dict[int, Tensor]:
        """For each of these layers, the sums [C, D] over the samples of a class of their directions."""
        sums = {layer: torch.zeros_like(self._prototypes(layer).vectors[:, 0]) for layer in layers}
        for batch in batches:
            h = self.stem(batch.x)
            for layer in range(max(layers) + 1):
                features = self.features(layer, h)
                if layer in sums:
                    direction = functional.project(self._vector(layer, features))
                    sums[layer].index_add_(0, batch.y, direction)
                h = self.next_input(layer, features, h)
        return sums

    @torch.no_grad()
    def final_diagnostics(self, batches: Iterable[Batch]) -> dict[str, float]:
        """For each layer, the angle between the prototypes of a class and the mean direction of its samples.

        It is in degrees, and the mean over all prototypes of the classes that occur.
        """
        found = {}
        for layer, sums in self._class_sums(self.layers_with_head, batches).items():
            means = functional.project(sums)
            cosines = (self._prototypes(layer)() * means.unsqueeze(1)).sum(-1)
            angles = torch.rad2deg(cosines[means.ne(0).any(1)].clamp(-1, 1).acos())
            found[f"prototype_angle_{layer}"] = float(angles.mean())
        return found

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
        if layer in self.layers_with_head:
            self._prototypes(layer).after_step()

    def reduced_buffers(self) -> list[Tensor]:
        layers = self.layers_with_head
        return [buffer for layer in layers for buffer in self._prototypes(layer).reduced_buffers()]

    def _vector(self, layer: int, features: Tensor) -> Tensor:
        """The vector [B, D] that is compared with the prototypes."""
        head = module_at(self.heads, layer)
        features = self.head_input(layer, features)
        vector: Tensor = features if isinstance(head, nn.Identity) else head(features)
        return vector if self.uses_length(layer) else functional.project(vector)

    def _class_scores(self, layer: int, vector: Tensor) -> Tensor:
        return functional.class_scores(vector, self._prototypes(layer)(), self.temperature)

    def _uses_pooled_map(self, layer: int) -> bool:
        """Whether the scores of a convolution use the map after max-pooling."""
        return self._pooled_maps[layer]

    def uses_length(self, layer: int) -> bool:
        """Whether the scores use the length of the vector, not only its direction."""
        return self._lengths[layer]

    def head_input(self, layer: int, features: Tensor) -> Tensor:
        """The vectors [B, D] or maps [B, C, H, W] that the head of a layer takes, from its features."""
        if self.loss_on == "pre" and self._uses_pooled_map(layer):
            return self.affine_block(layer).output(features)
        return features

    def _scales_margin(self, layer: int) -> bool:
        return not self.uses_length(layer) if self.scale_margin is None else self.scale_margin

    def _prototypes(self, layer: int) -> Prototypes:
        return cast(Prototypes, module_at(self.prototypes, layer))


def _direction(h: Tensor) -> Tensor:
    """Eq. 5 for the input of the next block: vectors get length 1, maps length 1 per position on average.

    In a large map [B, C, H, W] of unit length, values would be negligible beside the next layer's biases.
    """
    positions = h[0, 0].numel() if h.dim() > 2 else 1
    return (functional.project(h.flatten(1)) * math.sqrt(positions)).view_as(h)


def _widths_of_heads(network: Network, aux_channels: tuple[int, ...] | None) -> list[int]:
    """The auxiliary width of each row; 0 for fully connected rows."""
    if aux_channels is None:
        return [row.aux_channels or 0 for row in network.rows]
    maps = [len(shape) == 3 for shape in network.out_shapes()]
    convolutions = sum(maps)
    widths = list(aux_channels) * (convolutions if len(aux_channels) == 1 else 1)
    if len(widths) != convolutions:
        raise UserError(
            f"aux_channels has {len(aux_channels)} widths, but network {network.name!r} has {convolutions} "
            f"convolutions: give one width for each or one for all."
        )
    remaining = iter(widths)
    return [next(remaining) if is_map else 0 for is_map in maps]
