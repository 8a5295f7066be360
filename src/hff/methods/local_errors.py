"""Local errors: every layer predicts the labels, and makes samples as similar as their labels are."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import UserError
from hff.methods.families.local import LocalMethod
from hff.methods.method import MethodInfo, register
from hff.modules.feedback import FeedbackLinear
from hff.networks import AffineBlock, AffineRow, Network, Shape


@register
class LocalErrors(LocalMethod):
    """Each layer learns by a prediction loss, a similarity loss or both; a linear classifier learns on top.

    Networks that it was published with have batch norm, dropout, and leaky_relu with a similarity loss.

    Args:
        loss: what a layer learns by: prediction of the label, similarity between samples, or both.
        similarity_weight: share of the similarity in predsim; the prediction has the rest.
        decoder_dim: most numbers of a map that a prediction reads; a larger map is average-pooled first.
        bio: predict random codes of the labels, and let the error of the prediction come back through fixed
            random weights, so that even within a layer no weight is used in both directions.
        code_dim: length of the random codes.
        read_out: the classifier on top (last), or a layer's prediction, or the mean of all.
    """

    name = "local_errors"
    info = MethodInfo(
        title="Local Errors",
        paper="Nøkland and Eidnes 2019, Training Neural Networks with Local Error Signals (arXiv 1901.06656)",
        passes="1",
        needs_negatives=False,
        gradient_reach=0,
        supports="any",
        data_parallel=False,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        loss: Literal["predsim", "pred", "sim"] = "predsim",
        similarity_weight: float = 0.99,
        decoder_dim: int = 4096,
        bio: bool = False,
        code_dim: int = 128,
        **options: Any,
    ) -> None:
        super().__init__(network, classes, **options)
        if not 0 < similarity_weight < 1:
            raise UserError(
                f"similarity_weight must lie between 0 and 1, not {similarity_weight:g}; loss pred or sim "
                f"leaves one of the two out."
            )
        if min(decoder_dim, code_dim) < 1:
            raise UserError("decoder_dim and code_dim must be at least 1.")
        if loss == "sim" and self.read_out != "last":
            raise UserError("With loss sim only the classifier on top has scores; leave read_out at last.")
        self.similarity_weight = {"pred": 0.0, "sim": 1.0}.get(loss, similarity_weight)
        for layer in range(len(self.blocks)):
            block = self.block(layer)
            shape = block.out_shape
            if isinstance(block, AffineBlock) and self._judges_map(layer):
                shape = block.map_shape
            self.heads[layer] = (
                BioJudge(shape, classes, decoder_dim, code_dim, predicts=loss != "sim")
                if bio
                else Judge(shape, classes, decoder_dim, predicts=loss != "sim", compares=loss != "pred")
            )
        self.classifier = zeroed(nn.Linear(self.block(len(self.blocks) - 1).out_features, classes))

    def features(self, layer: int, h: Tensor) -> Tensor:
        block = self.block(layer)
        if isinstance(block, AffineBlock) and self._judges_map(layer):
            return block.activate(block.preactivation(h))
        return block.activity(h)

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        block = self.block(layer)
        out = features
        if isinstance(block, AffineBlock) and self._judges_map(layer):
            out = block.pooled(features)
        # Whole channels are dropped, as published, so it makes no difference that pooling comes first.
        drop = F.dropout2d if out.dim() == 4 else F.dropout
        return drop(out, block.dropout.p, block.training)

    def scores(self, layer: int, features: Tensor) -> Tensor:
        return self._judge(layer).scores(features)

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        activity, y = features, batch.y
        judge, share = self._judge(layer), self.similarity_weight
        if share == 0:
            return judge.prediction_loss(activity, y)
        if share == 1:
            return judge.similarity_loss(activity, y)
        return (1 - share) * judge.prediction_loss(activity, y) + share * judge.similarity_loss(activity, y)

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        if self.similarity_weight < 1:
            return super().layer_scores(x, depth)
        return self.scores_of([len(self.blocks) - 1], x, depth)

    def _judges_map(self, layer: int) -> bool:
        """Whether the map before pooling is judged, as published; not where a norm follows that learns."""
        row = self.block(layer).row
        if not isinstance(row, AffineRow):
            return False
        return row.kind == "conv" and (row.norm == "none" or row.norm_at != "output")

    def _judge(self, layer: int) -> "Judge":
        judge = self.heads[layer]
        assert isinstance(judge, Judge)
        return judge


class Judge(nn.Module):
    """The two losses of a layer, given its activity [B, *shape] and the labels [B].

    The prediction is linear in the pooled activity and starts at zero. The similarities are those of a linear
    map of the activity, or of a convolution where it is a map.
    """

    def __init__(
        self, shape: Shape, classes: int, decoder_dim: int, *, predicts: bool, compares: bool
    ) -> None:
        super().__init__()
        self.classes = classes
        self.pool, pooled = pooling(shape, decoder_dim)
        self.inputs = math.prod(pooled)
        self.decoder = zeroed(nn.Linear(self.inputs, classes)) if predicts else nn.Identity()
        self.compare = comparison(shape) if compares else nn.Identity()

    def decoded(self, activity: Tensor) -> Tensor:
        out: Tensor = self.decoder(self.pool(activity).flatten(1))
        return out

    def scores(self, activity: Tensor) -> Tensor:
        """The scores [B, C]."""
        return self.decoded(activity)

    def prediction_loss(self, activity: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(self.decoded(activity), y)

    def similarity_loss(self, activity: Tensor, y: Tensor) -> Tensor:
        targets = F.one_hot(y, self.classes).to(activity.dtype)
        return functional.similarity_matching_loss(vectors(self.compare(activity)), targets)


class BioJudge(Judge):
    """The same losses on random codes of the labels, without any weight that is used in both directions.

    The prediction is of the signs of the code, one binary cross-entropy each; its error comes back through
    fixed random weights. The similarities are those of the pooled activity itself.
    """

    codes: Tensor

    def __init__(
        self, shape: Shape, classes: int, decoder_dim: int, code_dim: int, *, predicts: bool
    ) -> None:
        super().__init__(shape, classes, decoder_dim, predicts=False, compares=False)
        bound = 1 / math.sqrt(classes)
        self.register_buffer("codes", torch.empty(classes, code_dim).uniform_(-bound, bound))
        if predicts:
            self.decoder = zeroed(FeedbackLinear(self.inputs, code_dim))

    def scores(self, activity: Tensor) -> Tensor:
        """The log-likelihood of each class's signs, but for what all classes share [B, C]."""
        return self.decoded(activity) @ self.signs.T

    @property
    def signs(self) -> Tensor:
        """Which parts of the code of each class are positive [C, code_dim]."""
        return (self.codes > 0).to(self.codes.dtype)

    def prediction_loss(self, activity: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.decoded(activity), self.signs[y])

    def similarity_loss(self, activity: Tensor, y: Tensor) -> Tensor:
        return functional.similarity_matching_loss(vectors(self.pool(activity)), self.codes[y])


def pooling(shape: Shape, most: int) -> tuple[nn.Module, Shape]:
    """Average pooling that leaves at most so many numbers of a map, and the shape it leaves.

    Height and width are halved in turn; a map of one position stays, however many channels it has.
    """
    if len(shape) == 1:
        return nn.Identity(), shape
    channels, *cells = shape
    side = 0
    while channels * cells[0] * cells[1] > most and max(cells) > 1:
        cells[side] = math.ceil(cells[side] / 2)
        side = 1 - side
    pooled = (channels, *cells)
    return nn.Identity() if pooled == shape else nn.AdaptiveAvgPool2d((cells[0], cells[1])), pooled


def comparison(shape: Shape) -> nn.Module:
    """The map, of an activity [B, *shape] onto its like, whose similarities are compared."""
    width = shape[0]
    if len(shape) == 1:
        return nn.Linear(width, width, bias=False)
    return nn.Conv2d(width, width, 3, padding=1, bias=False)


def vectors(h: Tensor) -> Tensor:
    """What is compared between samples [B, D]: of a map, how much each channel varies over positions.

    That is its standard deviation. A map of three channels or fewer, or of one position, is taken as it is.
    """
    if h.dim() == 4 and h.shape[1] > 3 and h[0, 0].numel() > 1:
        return h.flatten(2).std(dim=2)
    return h.flatten(1)


def zeroed(linear: nn.Linear) -> nn.Linear:
    """The layer with zeros in place of its first weights: it starts from equal scores."""
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
