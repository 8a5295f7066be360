"""Backpropagation on the same blocks, as the baseline."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from hff import functional
from hff.batch import Batch
from hff.methods.compiled import Compilable
from hff.methods.method import Method, MethodInfo, ParameterSet, Stage, register
from hff.networks import Network


@register
class Backprop(Compilable, Method):
    """One cross-entropy loss at the output, whose gradient flows through all blocks.

    A last row of C units, as in the deep networks, is the classifier; otherwise a linear one is added.

    Args:
        head: flatten the last map before the linear classifier, or average it over positions (pool).
        checkpointing: whether to keep only every few activities for the backward pass and compute the others
            again, which takes less memory and more time; the gradients are the same.
    """

    name = "backprop"
    info = MethodInfo(
        title="Backpropagation",
        paper="Rumelhart, Hinton and Williams 1986, Learning representations by back-propagating errors",
        gradient_reach="all",
        top_signal=True,
        supports="any",
        layer_local=False,
        learning_rate=3e-3,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        head: Literal["flatten", "pool"] = "flatten",
        checkpointing: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(network, classes, **options)
        self.head = head
        self.checkpointing = checkpointing
        last = self.block(len(self.blocks) - 1)
        self.ends_in_classes = network.ends_in(classes)
        width = last.out_shape[0] if head == "pool" else last.out_features
        self.classifier = nn.Identity() if self.ends_in_classes else nn.Linear(width, classes)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        return {"network": [ParameterSet(list(self.parameters()))]}

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if self.compiled is None:
            loss = self._loss(batch.x, batch.y)
        else:
            loss = self.compiled("network", self._loss, self.parameters(), batch.x, batch.y)
        loss.backward()
        yield "network", loss.detach()

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(self._logits(x), y)

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        yield len(self.blocks) - 1, self._logits(x)

    def forward(self, x: Tensor) -> Tensor:
        return self._logits(x) if self.read_out == "last" else super().forward(x)

    def _logits(self, x: Tensor) -> Tensor:
        *hidden, last = range(len(self.blocks))
        h = x
        if self.checkpointing and torch.is_grad_enabled() and hidden:
            # About as many segments as blocks in each, which needs the least memory.
            hidden_blocks = nn.Sequential(*(self.blocks[layer] for layer in hidden))
            h = checkpoint_sequential(hidden_blocks, math.isqrt(len(hidden)), h, use_reentrant=False)
        else:
            for layer in hidden:
                h = self.blocks[layer](h)
        if self.ends_in_classes:
            return self.affine_block(last).preactivation(h)
        h = self.blocks[last](h)
        if self.head == "pool" and h.dim() > 2:
            h = h.mean((2, 3))
        logits: Tensor = self.classifier(h.flatten(1))
        return logits
