"""What rules share that contrast inputs bearing their true label with the same inputs bearing a wrong one."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import UserError
from hff.methods.method import Method, ReadOut
from hff.modules.labels import AdditiveEncoding, LabelEncoding, wrong_labels
from hff.networks import Block, Network

NUMBERS_AT_ONCE = 1_000_000
"""Activities of one layer that candidates are scored with at a time: more would leave the cache."""


class PairMethod(Method):
    """Every block tells inputs with their true label from the same inputs with a wrong one, by its goodness.

    To predict, every class is tried as the label. The batch that walks through the blocks is [2 B, ...]: the
    positives first, then the negatives of the same samples in the same order.
    """

    hides_length: ClassVar[bool] = True
    """Whether a block sees its input at unit power, so that it cannot reuse the goodness of the one below."""

    def __init__(
        self,
        network: Network,
        classes: int,
        encoding: LabelEncoding,
        *,
        read_out: ReadOut = "mean",
        blocks: Sequence[nn.Module] | None = None,
    ) -> None:
        labelled = replace(network, in_shape=encoding.out_shape)
        super().__init__(labelled, classes, read_out=read_out, blocks=blocks)
        self.encoding = encoding

    @abstractmethod
    def pair_loss(self, layer: int, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of a block, from the goodness [B] of the positives and [B] of their negatives."""

    def goodness(self, layer: int, activity: Tensor) -> Tensor:
        """The goodness [N] of an activity [N, *out_shape]."""
        return functional.goodness(activity)

    def negatives(self, batch: Batch) -> Tensor:
        """A wrong label for each sample [B]."""
        return wrong_labels(batch.y, self.classes, batch.draw("negatives"))

    def training_inputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.pair(batch, self.negatives(batch)), batch.y

    def pair(self, batch: Batch, wrong: Tensor) -> Tensor:
        """The inputs with their true labels, then the same inputs with the wrong ones [2 B, ...]."""
        pair: Tensor = self.encoding(torch.cat([batch.x, batch.x]), torch.cat([batch.y, wrong]))
        return pair

    def activity(self, layer: int, h: Tensor) -> Tensor:
        """The activity [N, *out_shape] of a block for its input [N, *in_shape]."""
        return self.block(layer).activity(functional.unit_power(h) if self.hides_length else h)

    def layer_step(self, layer: int, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        activity = self.activity(layer, h)
        positive, negative = self.goodness(layer, activity).chunk(2)
        loss = self.pair_loss(layer, positive, negative)
        loss.backward()
        return loss.detach(), self.next_input(layer, h, activity.detach())

    def next_input(self, layer: int, h: Tensor, activity: Tensor) -> Tensor:
        """What the next block gets of an activity [N, *out_shape] for the input h [N, *in_shape]."""
        out: Tensor = self.block(layer).dropout(activity)
        return out

    def forward_block(self, layer: int, h: Tensor) -> Tensor:
        return self.next_input(layer, h, self.activity(layer, h))

    def layer_scores(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        yield from in_parts(self, self._candidate_scores, x)

    def _candidate_scores(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """(layer, goodness [B, C] of each class as the label); inside, the candidates are [B C, ...]."""
        shared = self.shares_first_product
        h = x if shared else self._candidates(x)
        for layer in range(len(self.blocks)):
            activity = self._first_activity(x) if shared and layer == 0 else self.activity(layer, h)
            yield layer, self.goodness(layer, activity).view(-1, self.classes)
            h = self.next_input(layer, h, activity)

    @property
    def shares_first_product(self) -> bool:
        """Whether candidates share the first block's product with x; their inputs are then never built."""
        block = self.block(0)
        additive = isinstance(self.encoding, AdditiveEncoding)
        return additive and block.affine_in_evaluation and not block.training

    def _candidates(self, x: Tensor) -> Tensor:
        """x with every class as its label [B C, ...]."""
        every = torch.arange(self.classes, device=x.device).repeat(len(x))
        candidates: Tensor = self.encoding(x.repeat_interleave(self.classes, 0), every)
        return candidates

    def _first_activity(self, x: Tensor) -> Tensor:
        """The first block's activity [B C, *out_shape] for x with every class as its label.

        The block's product with x is shared by the candidates: with f affine,
        f((x + p) / r) = (f(x) - f(0) + f(p) - f(0)) / r + f(0).
        """
        block, encoding = self.block(0), self.encoding
        assert isinstance(encoding, AdditiveEncoding)
        base, patterns = encoding.base(x), encoding.patterns()
        offset = block.preactivation(torch.zeros_like(patterns[:1]))
        shared, own = block.preactivation(base) - offset, block.preactivation(patterns) - offset
        f = shared.unsqueeze(1) + own
        if self.hides_length:
            scale = _inverse_power(base.flatten(1), patterns.flatten(1))
            f *= scale.view(*scale.shape, *(1,) * (f.dim() - 2))
        f += offset
        return block.pooled(block.activate(f.flatten(0, 1)))


class GapMethod(PairMethod):
    """Rules with SymBa's loss: the goodness of a pair is to differ, and there is no threshold."""

    def __init__(
        self,
        network: Network,
        classes: int,
        encoding: LabelEncoding,
        *,
        sharpness: float,
        read_out: ReadOut,
        blocks: Sequence[nn.Module] | None = None,
    ) -> None:
        super().__init__(network, classes, encoding, read_out=read_out, blocks=blocks)
        if sharpness <= 0:
            raise UserError(f"sharpness must be greater than 0, not {sharpness:g}.")
        self.sharpness = sharpness

    def goodness(self, layer: int, activity: Tensor) -> Tensor:
        return functional.mean_goodness(activity)

    def pair_loss(self, layer: int, positive: Tensor, negative: Tensor) -> Tensor:
        return functional.symmetric_pair_loss(positive, negative, self.sharpness)


def in_parts(
    method: Method, walk: Callable[[Tensor], Iterator[tuple[int, Tensor]]], x: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """The (layer, scores [B, C]) of a walk that tries every class, as many samples at once as is fast."""
    widest = max(block.out_features for block in method.blocks if isinstance(block, Block))
    parts = x.split(max(1, NUMBERS_AT_ONCE // (method.classes * widest)))
    if len(parts) == 1:
        yield from walk(x)
        return
    found = [dict(walk(part)) for part in parts]
    for layer in found[0]:
        yield layer, torch.cat([scores[layer] for scores in found])


def _inverse_power(base: Tensor, patterns: Tensor) -> Tensor:
    """What `functional.unit_power` multiplies x + p by, for bases [B, D] and patterns [C, D] -> [B, C]."""
    squares = base.square().sum(1, keepdim=True) + 2 * base @ patterns.T + patterns.square().sum(1)
    return 1 / ((squares.clamp_min(0) / base.shape[1]).sqrt() + 1e-8)


def scale_by_fan_in(method: Method) -> None:
    """Weights drawn anew from N(0, 1 / fan-in), biases 0: Forward-Forward's start."""
    for block in method.blocks:
        assert isinstance(block, Block)
        weight, bias = block.affine.weight, block.affine.bias
        nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
        if bias is not None:
            nn.init.zeros_(bias)
