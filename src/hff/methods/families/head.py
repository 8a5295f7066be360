"""Shared by local rules with a head for each layer; as a control, they can be trained by backprop."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import UserError
from hff.methods.early_exit import NarrowingScores
from hff.methods.families.local import LocalMethod
from hff.methods.method import Stage, group_name
from hff.networks import Network

Losses = Literal["none", "all_losses", "last_loss"]


class HeadMethod(LocalMethod):
    """Local rules whose layers each have a head and a loss, which can be backpropagated as a control.

    With `backprop`, the network, the heads and the losses are those of the rule, but no output of a block is
    detached. A difference to the rule itself is then due to the gradients alone.

    A classifier on top is the last layer's head: its loss is the last one, and the last block needs no other.

    Args:
        backprop: what is backpropagated through all blocks: nothing, so that the rule is local (none), the
            sum of the losses of all layers (all_losses), or the loss of the last layer only (last_loss), in
            which case no other layer has a head.
    """

    has_classifier: ClassVar[bool] = False
    """Whether the rule has a `classifier` on top."""

    def __init__(
        self,
        network: Network,
        classes: int,
        blocks: Sequence[nn.Module] | None = None,
        *,
        backprop: Losses = "none",
        **options: Any,
    ) -> None:
        super().__init__(network, classes, blocks, **options)
        last = len(self.blocks) - 1
        if backprop != "none" and self.layer_order == "greedy":
            raise UserError("Greedy training detaches the layers; use layer_order joint with backprop.")
        if backprop == "last_loss" and self.read_out not in ("last", -1, last):
            raise UserError("With backprop last_loss, only the last layer has scores; use read_out last.")
        self.backprop = backprop
        first = {"last_loss": last + self.has_classifier}.get(backprop, 0)
        self.layers_with_head = range(first, last + 1)
        """The layers that have a head and a loss."""

    @property
    def layer_local(self) -> bool:
        return super().layer_local and self.backprop == "none"

    @property
    def top_signal(self) -> bool:
        return super().top_signal or self.backprop != "none"

    @property
    def gradient_reach(self) -> int | Literal["all"]:
        return super().gradient_reach if self.backprop == "none" else "all"

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if self.backprop == "none":
            yield from super().update(batch, stage)
            return
        losses = self.losses(self.training_inputs(batch), batch)
        total = torch.stack(list(losses.values())).sum()
        total.backward()
        for layer in range(len(self.blocks)):
            group = group_name(layer)
            yield group, losses.get(group, total).detach()
        if self.classifier is not None:
            yield "classifier", losses["classifier"].detach()

    def losses(self, h: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The losses [] that are backpropagated, by group. No output of a block is detached."""
        losses = {}
        for layer in range(len(self.blocks)):
            features = self.features(layer, h)
            if layer in self.layers_with_head:
                losses[group_name(layer)] = self.loss(layer, features, batch)
            if layer < len(self.blocks) - 1 or self.classifier is not None:
                h = self.next_input(layer, features, h)
        if self.classifier is not None:
            losses["classifier"] = functional.cross_entropy(self.classifier(h.flatten(1)), batch.y)
        return losses

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        if self.backprop == "last_loss":
            return self.scores_of([len(self.blocks) - 1], x, depth)
        return super().layer_scores(x, depth)

    def narrowing_scores(self, layers: Sequence[int], x: Tensor) -> NarrowingScores:
        return self.scores_of([len(self.blocks) - 1] if self.backprop == "last_loss" else layers, x)
