"""Shared by Hebbian rules: blocks learn without labels, then read-outs learn on the frozen blocks."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from hff.batch import Batch
from hff.errors import UserError
from hff.methods.families.local import LayerOrder, LocalMethod, classifier_step
from hff.methods.method import ParameterSet, ReadOut, Stage, group_name
from hff.modules.class_means import ClassMeans, subtract
from hff.modules.heads import Head
from hff.networks import AffineBlock, Network, Norm

ReadOutRule = Literal["hebbian", "linear"]


class HebbianMethod(LocalMethod):
    """Weights change by products of a unit's input and response; blocks are trained without gradients.

    A subclass defines how the units of a block respond and how a batch changes their weights. The blocks
    learn first, without labels. Then every layer trains its own read-out on the frozen blocks: class means,
    which are Hebbian too, or a linear classifier.

    Args:
        read_out_rule: class means (hebbian), or a softmax layer trained by gradient descent (linear).
        block_epochs: epochs in which the blocks learn, as a number or as a share below 1; the read-outs learn
            in the remaining ones. None means all epochs but one.
        grid: side of the grid that a map is average-pooled to for the read-out; 0 means no pooling.
        layer_order: all blocks learn from each batch (joint), or one block after the other, each for
            block_epochs (greedy).
        read_out: the layer whose read-out predicts.
    """

    def __init__(
        self,
        network: Network,
        classes: int,
        dropout: float = 0.0,
        *,
        read_out_rule: ReadOutRule = "hebbian",
        block_epochs: int | float | None = None,
        grid: int = 4,
        layer_order: LayerOrder = "joint",
        read_out: ReadOut = "last",
    ) -> None:
        """dropout: dropout probability of the features while a linear read-out learns."""
        if block_epochs is not None and (
            block_epochs <= 0 or (block_epochs > 1 and block_epochs != int(block_epochs))
        ):
            raise UserError(
                f"block_epochs must be a number of epochs or a share between 0 and 1, not {block_epochs:g}."
            )
        super().__init__(network, classes, layer_order=layer_order, read_out=read_out)
        self.block_epochs = block_epochs
        self.block_batch_size: int | None = None
        self.pools = [
            Head(self.block(layer).out_shape, grid=grid, channels=0) for layer in range(len(self.blocks))
        ]
        """Pooling to the features of each read-out; without parameters."""
        for layer, pool in enumerate(self.pools):
            self.heads[layer] = (
                ClassMeans(pool.dim, classes)
                if read_out_rule == "hebbian"
                else nn.Sequential(nn.Dropout(dropout), nn.Linear(pool.dim, classes))
            )

    @classmethod
    def unsupported_reason(cls, network: Network, classes: int) -> str | None:
        if any(row.groups > 1 for row in network.affine_rows):
            return (
                f"{cls.info.title} needs all units of a layer to have the same input, but those of different "
                "groups do not; choose a network without groups."
            )
        return super().unsupported_reason(network, classes)

    @abstractmethod
    def change(self, layer: int, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """The change of a block's weights by a batch, shaped like them, and a number to report as loss [].

        x: input of the affine map [B, *affine_in_shape]; u: responses of the units [B, *map_shape].
        """

    def affine_input(self, layer: int, h: Tensor) -> Tensor:
        """The input of a block's units: [B, *in_shape] -> [B, *affine_in_shape]."""
        return self.affine_block(layer).affine_input(h)

    def response(self, layer: int, x: Tensor) -> Tensor:
        """The responses of the units: [B, *affine_in_shape] -> [B, *map_shape]."""
        u: Tensor = self.affine_block(layer).affine(x)
        return u

    def features(self, layer: int, h: Tensor) -> Tensor:
        return self._activity(layer, self.response(layer, self.affine_input(layer, h)))

    @torch.no_grad()
    def layer_step(self, layer: int, h: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        x = self.affine_input(layer, h)
        u = self.response(layer, x)
        change, watched = self.change(layer, x, u)
        subtract(self.affine_block(layer).affine.weight, change)
        return watched, self.next_input(layer, self._activity(layer, u), h)

    def stages(self, epochs: int) -> list[Stage]:
        """The blocks, all at once or one after the other, then the read-outs in the remaining epochs.

        A budget of one epoch is exceeded, because blocks and read-outs each need at least one.
        """
        wanted: float = epochs if self.block_epochs is None else self.block_epochs
        span = max(1, min(round(wanted * epochs if wanted < 1 else wanted), epochs - 1))
        every = tuple(range(len(self.blocks)))
        together = {"blocks": every} if self.layer_order == "joint" else {f"block {i}": (i,) for i in every}
        return [
            *(
                Stage(name, blocks, span, self.block_batch_size, labels=False, predicts=False)
                for name, blocks in together.items()
            ),
            Stage("read-out", (), max(1, epochs - span)),
        ]

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        if stage.labels:
            return {
                _read_out_name(layer): [
                    ParameterSet(list(head.parameters()), raw_update=isinstance(head, ClassMeans))
                ]
                for layer, head in enumerate(self.heads)
            }
        return {
            group_name(layer): [ParameterSet(list(self.blocks[layer].parameters()), raw_update=True)]
            for layer in stage.blocks
        }

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if not stage.labels:
            yield from super().update(batch, stage)
            return
        depth = len(self.blocks)
        frozen = batch.x if batch.depth == depth else self.frozen_features(batch.x, depth)
        for layer, (head, features) in enumerate(self._by_head(frozen)):
            step = head.learn if isinstance(head, ClassMeans) else partial(classifier_step, head)
            yield _read_out_name(layer), step(features, batch.y)

    @torch.no_grad()
    def frozen_features(self, x: Tensor, depth: int) -> Tensor:
        """If all blocks are frozen: the inputs of the read-outs of all layers, concatenated."""
        if depth < len(self.blocks):
            return super().frozen_features(x, depth)
        found, h = [], self.stem(x)
        for layer, pool in enumerate(self.pools):
            features = self.features(layer, h)
            found.append(pool(features))
            h = self.next_input(layer, features, h)
        return torch.cat(found, 1)

    def scored_layers(self, depth: int) -> Sequence[int]:
        return range(depth if depth < len(self.blocks) else 0, len(self.blocks))

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        if depth < len(self.blocks):
            yield from super().layer_scores(x, depth)
            return
        for layer, (head, features) in enumerate(self._by_head(x)):
            yield layer, head(features)

    def scores(self, layer: int, features: Tensor) -> Tensor:
        return super().scores(layer, self.pools[layer](features))

    def _by_head(self, frozen: Tensor) -> Iterator[tuple[nn.Module, Tensor]]:
        """Each read-out with its inputs, from the concatenated inputs of all read-outs."""
        yield from zip(self.heads, torch.split(frozen, [pool.dim for pool in self.pools], 1), strict=True)

    def _activity(self, layer: int, u: Tensor) -> Tensor:
        block = self.affine_block(layer)
        return block.pooled_activity(block.normalize(u))


def without_biases(network: Network, classes: int) -> Network:
    """The network without biases and without gains of norms, which Hebbian rules do not train.

    A last linear row of C units, as in the deep networks, is removed: the read-out replaces it.
    """
    rows = network.affine_rows
    if len(rows) > 1 and network.ends_in(classes):
        rows = rows[:-1]
    norms: dict[Norm, Norm] = {"batch": "batch_plain", "layer": "layer_plain"}
    return replace(
        network, rows=tuple(replace(row, bias=False, norm=norms.get(row.norm, row.norm)) for row in rows)
    )


def patch_sums(block: AffineBlock, gates: Tensor, x: Tensor) -> Tensor:
    """The sum over samples and positions of each unit's gate times its input patch.

    gates [B, *map_shape], input of the affine map x [B, *affine_in_shape] -> the shape of the weights.
    """
    affine = block.affine
    if isinstance(affine, nn.Linear):
        return gates.T @ x
    sums: Tensor = conv2d_weight(x, affine.weight.shape, gates, affine.stride, affine.padding)
    return sums


def unit_sums(u: Tensor) -> Tensor:
    """The sum over samples and positions for each unit: [B, K, ...] -> [K]."""
    return u.transpose(0, 1).flatten(1).sum(1)


def by_unit(values: Tensor, weight: Tensor) -> Tensor:
    """A value for each unit [K], reshaped to multiply weights [K, ...]."""
    return values.view(-1, *(1,) * (weight.dim() - 1))


def _read_out_name(layer: int) -> str:
    return f"read_out{layer}"
