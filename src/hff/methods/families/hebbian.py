"""What Hebbian rules share: blocks that learn without labels, then read-outs on blocks at rest."""

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
    """Weights change by products of what a unit reads and how it answers; no gradient is taken in a block.

    A rule states how the units of a block respond and how a batch changes their weights. The blocks learn
    first, without labels. Then every layer gets a read-out of its own on frozen blocks: class means, which
    are Hebbian too, or a linear classifier.

    Args:
        read_out_rule: the mean of each class (hebbian), or a softmax layer that learns by its gradient
            (linear).
        block_epochs: epochs in which the blocks learn, a count or a share below 1; the read-outs get the
            rest. None leaves them one epoch.
        grid: side of the grid that a map is average-pooled to for the read-out; 0 is no pooling.
        layer_order: all blocks learn in the same pass (joint), or one after the other, each for its
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
        """dropout: share of the features that is dropped while a linear read-out learns."""
        if block_epochs is not None and (
            block_epochs <= 0 or (block_epochs > 1 and block_epochs != int(block_epochs))
        ):
            raise UserError(
                f"block_epochs must be a count of epochs or a share between 0 and 1, not {block_epochs:g}."
            )
        super().__init__(network, classes, layer_order=layer_order, read_out=read_out)
        self.block_epochs = block_epochs
        self.block_batch_size: int | None = None
        self.pools = [
            Head(self.block(layer).out_shape, grid=grid, channels=0) for layer in range(len(self.blocks))
        ]
        """What makes the features of each read-out; they have no parameters."""
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
                f"{cls.info.title} lets all units of a layer compete for the same input, which those of "
                "different groups do not share; choose a network without groups."
            )
        return super().unsupported_reason(network, classes)

    @abstractmethod
    def change(self, layer: int, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """What a batch adds to the weights of a block, shaped like them, and a number to watch [].

        x: the input of the affine map [B, *affine_in_shape]; u: the units' responses [B, *map_shape].
        """

    def affine_input(self, layer: int, h: Tensor) -> Tensor:
        """The input of a block's units: [B, *in_shape] -> [B, *affine_in_shape]."""
        return self.affine_block(layer).affine_input(h)

    def response(self, layer: int, x: Tensor) -> Tensor:
        """The units' responses: [B, *affine_in_shape] -> [B, *map_shape]."""
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
        """The blocks, all at once or one after the other, then the read-outs in the epochs that are left.

        A budget of one epoch is exceeded: a read-out of blocks that never learned would be another method.
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
        """Once all blocks are frozen: the inputs of the read-outs of all layers, side by side."""
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
        """Each read-out with its inputs, from the inputs of all read-outs side by side."""
        yield from zip(self.heads, torch.split(frozen, [pool.dim for pool in self.pools], 1), strict=True)

    def _activity(self, layer: int, u: Tensor) -> Tensor:
        block = self.affine_block(layer)
        return block.pooled(block.activate(block.normalize(u)))


def without_biases(network: Network, classes: int) -> Network:
    """The network without what no Hebbian rule trains: biases, gains of norms, and a last row of C units.

    A last linear row of C units, as the deep networks have, is replaced by the read-out.
    """
    rows = network.affine_rows
    if len(rows) > 1 and network.ends_in(classes):
        rows = rows[:-1]
    norms: dict[Norm, Norm] = {"batch": "batch_plain", "layer": "layer_plain"}
    return replace(
        network, rows=tuple(replace(row, bias=False, norm=norms.get(row.norm, row.norm)) for row in rows)
    )


def patch_sums(block: AffineBlock, gates: Tensor, x: Tensor) -> Tensor:
    """The sum over samples and positions of each unit's gate times the patch that it read there.

    gates [B, *map_shape], what the block read x [B, *read_shape] -> shaped like the block's weights.
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
    """A value for each unit [K], in a shape that multiplies weights [K, ...]."""
    return values.view(-1, *(1,) * (weight.dim() - 1))


def _read_out_name(layer: int) -> str:
    return f"read_out{layer}"
