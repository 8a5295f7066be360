"""Shared by rules that contrast inputs with their true label and the same inputs with a wrong label."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import require
from hff.methods.early_exit import EarlyExit, NarrowingScores
from hff.methods.families.local import LocalMethod
from hff.methods.method import Method, ReadOut
from hff.modules.labels import AdditiveEncoding, LabelEncoding, wrong_labels
from hff.networks import Block, Network

NUMBERS_AT_ONCE = 1_000_000
"""Activities of one layer that are computed at a time when all classes are tried: they fit in the cache."""


class PairMethod(LocalMethod):
    """Every layer separates inputs with their true label from inputs with a wrong label, by its goodness.

    To predict, every class is tried as the label. In training, the input of the blocks is [2 B, ...]: first
    the positives, then the negatives of the same samples in the same order.

    Args:
        read_out: layers whose goodness predicts; the mean of all layers is equivalent to their sum.
    """

    hides_length: ClassVar[bool] = True
    """Whether inputs of blocks are normalized to unit power, which hides the goodness of the block below."""
    hard: bool = False
    """Whether negatives are drawn by the output of all layers, so that no layer can learn alone."""
    fixed_inputs = False

    def __init__(
        self,
        network: Network,
        classes: int,
        encoding: LabelEncoding,
        blocks: Sequence[nn.Module] | None = None,
        *,
        read_out: ReadOut = "mean",
        **options: Any,
    ) -> None:
        labeled = replace(network, in_shape=encoding.out_shape)
        super().__init__(labeled, classes, blocks, read_out=read_out, **options)
        self.encoding = encoding

    @property
    def layer_local(self) -> bool:
        return self.info.layer_local and not self.hard

    @property
    def top_signal(self) -> bool:
        return self.info.top_signal or self.hard

    @abstractmethod
    def pair_loss(self, layer: int, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of a block, from the goodness [B] of the positives and that of the negatives [B]."""

    def goodness(self, layer: int, activity: Tensor) -> Tensor:
        """The goodness [N] of an activity [N, *out_shape]."""
        return functional.goodness(activity)

    def negatives(self, batch: Batch) -> Tensor:
        """A wrong label for each sample [B]."""
        return wrong_labels(batch.y, self.classes, batch.draw("negatives"))

    def training_inputs(self, batch: Batch) -> Tensor:
        return self.pair(batch, self.negatives(batch))

    def pair(self, batch: Batch, wrong: Tensor) -> Tensor:
        """The inputs with their true labels, then the same inputs with the wrong labels [2 B, ...]."""
        pair: Tensor = self.encoding(torch.cat([batch.x, batch.x]), torch.cat([batch.y, wrong]))
        return pair

    def features(self, layer: int, h: Tensor) -> Tensor:
        """The activity [N, *out_shape] of a block for its input [N, *in_shape]."""
        return self.block(layer).activity(functional.unit_power(h) if self.hides_length else h)

    def judges_activity(self, layer: int) -> bool:
        return type(self).features is PairMethod.features

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        return self.pair_loss(layer, *self.goodness(layer, features).chunk(2))

    def scores_of(self, layers: Sequence[int], x: Tensor, depth: int = 0) -> NarrowingScores:
        yield from only(layers, in_parts(self, self._candidate_scores, x))

    def narrowing_scores(self, layers: Sequence[int], x: Tensor) -> NarrowingScores:
        return self._candidate_scores(x)

    def predict_early(self, x: Tensor, early_exit: EarlyExit) -> tuple[Tensor, Tensor]:
        self.check_inputs(x)
        parts = [super(PairMethod, self).predict_early(part, early_exit) for part in split(self, x)]
        return torch.cat([classes for classes, _ in parts]), torch.cat([layers for _, layers in parts])

    def _candidate_scores(self, x: Tensor) -> NarrowingScores:
        """Yields (layer, goodness [B, C] of each class as the label); takes the samples to continue with."""
        shared = self.shares_first_product
        h = x if shared else with_every_label(x, self.encoding, self.classes)[0]
        for layer in range(len(self.blocks)):
            features = self._first_activity(x) if shared and layer == 0 else self.features(layer, h)
            kept = yield layer, self.goodness(layer, features).view(-1, self.classes)
            if kept is not None:
                # The input of a shared first block has no labels yet.
                h = h[kept] if shared and layer == 0 else self._candidates(h, kept)
                features = self._candidates(features, kept)
            h = self.next_input(layer, features, h)

    def _candidates(self, h: Tensor, kept: Tensor) -> Tensor:
        """The rows of the kept samples [K] in h [B C, ...], which has a row for each class of a sample."""
        rows: Tensor = h.unflatten(0, (-1, self.classes))[kept]
        return rows.flatten(0, 1)

    @property
    def shares_first_product(self) -> bool:
        """Whether the first block's product with x is computed once for all labels."""
        block = self.affine_block(0)
        additive = isinstance(self.encoding, AdditiveEncoding)
        return additive and block.affine_in_evaluation and not block.training

    def _first_activity(self, x: Tensor) -> Tensor:
        """The first block's activity [B C, *out_shape] for x with every class as its label.

        All labels share the product with x: for an affine f, a pattern p and a power r,
        f((x + p) / r) = (f(x) - f(0) + f(p) - f(0)) / r + f(0).
        """
        block, encoding = self.affine_block(0), self.encoding
        assert isinstance(encoding, AdditiveEncoding)
        base, patterns = encoding.base(x), encoding.patterns()
        offset = block.preactivation(torch.zeros_like(patterns[:1]))
        shared, own = block.preactivation(base) - offset, block.preactivation(patterns) - offset
        f = shared.unsqueeze(1) + own
        if self.hides_length:
            scale = _inverse_power(base.flatten(1), patterns.flatten(1))
            f *= scale.view(*scale.shape, *(1,) * (f.dim() - 2))
        f += offset
        return block.pooled_activity(f.flatten(0, 1))


class GapMethod(PairMethod):
    """Rules with SymBa's loss, which increases the goodness gap of a pair and has no threshold.

    Args:
        sharpness: factor of the goodness gap in the softplus (alpha in the paper).
    """

    def __init__(
        self,
        network: Network,
        classes: int,
        encoding: LabelEncoding,
        blocks: Sequence[nn.Module] | None = None,
        *,
        sharpness: float = 4.0,
        **options: Any,
    ) -> None:
        super().__init__(network, classes, encoding, blocks, **options)
        require(sharpness > 0, f"sharpness must be greater than 0, not {sharpness:g}.")
        self.sharpness = sharpness

    def goodness(self, layer: int, activity: Tensor) -> Tensor:
        return functional.mean_goodness(activity)

    def pair_loss(self, layer: int, positive: Tensor, negative: Tensor) -> Tensor:
        return functional.symmetric_pair_loss(positive, negative, self.sharpness)


def with_every_label(x: Tensor, encoding: LabelEncoding, classes: int) -> tuple[Tensor, Tensor]:
    """Inputs [B, ...] with every class as their label [B C, ...], and these labels [B C]."""
    labels = torch.arange(classes, device=x.device).repeat(len(x))
    return encoding(x.repeat_interleave(classes, 0), labels), labels


def only(layers: Sequence[int], scores: Iterator[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """The scores of these layers; nothing above the last of them is computed."""
    for layer, each in scores:
        if layer in layers:
            yield layer, each
        if layer >= max(layers):
            return


def in_parts(
    method: Method, scores_for: Callable[[Tensor], Iterator[tuple[int, Tensor]]], x: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """The (layer, scores [B, C]) of a function that tries every class, in chunks of samples for speed."""
    parts = split(method, x)
    if len(parts) == 1:
        yield from scores_for(x)
        return
    found = [dict(scores_for(part)) for part in parts]
    for layer in found[0]:
        yield layer, torch.cat([scores[layer] for scores in found])


def split(method: Method, x: Tensor) -> Sequence[Tensor]:
    """Parts of inputs [B, ...] that are small enough to try every class at once."""
    widest = max(block.out_features for block in method.blocks if isinstance(block, Block))
    parts: Sequence[Tensor] = x.split(max(1, NUMBERS_AT_ONCE // (method.classes * widest)))
    return parts


def _inverse_power(base: Tensor, patterns: Tensor) -> Tensor:
    """The factor by which `functional.unit_power` scales x + p, for bases [B, D], patterns [C, D]: [B, C]."""
    squares = base.square().sum(1, keepdim=True) + 2 * base @ patterns.T + patterns.square().sum(1)
    return 1 / ((squares.clamp_min(0) / base.shape[1]).sqrt() + 1e-8)


def scale_by_fan_in(method: Method) -> None:
    """Initializes weights from N(0, 1 / fan-in) and biases to 0, as Forward-Forward does."""
    for layer in range(len(method.blocks)):
        affine = method.affine_block(layer).affine
        nn.init.normal_(affine.weight, std=affine.weight[0].numel() ** -0.5)
        if affine.bias is not None:
            nn.init.zeros_(affine.bias)
