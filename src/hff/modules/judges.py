"""Heads with the two losses of local error signals: label prediction and similarity matching."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff import functional
from hff.modules.feedback import FeedbackLinear
from hff.modules.grid_pool import GridPool
from hff.networks import Shape


class Judge(nn.Module):
    """The two losses of a layer, from its activity [B, *shape] and the labels [B].

    The prediction is a linear map of the pooled activity, initialized to zero. Similarities are computed
    after a linear map of the activity, or after a convolution if the activity is a map.
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
    """The same losses on random codes of the labels, without weights that are used in both directions.

    The prediction loss is the binary cross-entropy of the signs of the code; its error is sent back through
    fixed random weights. Similarities are those of the pooled activity itself.
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
        """The log-likelihood of each class's signs, up to a term that all classes share [B, C]."""
        return self.decoded(activity) @ self.signs.T

    @property
    def signs(self) -> Tensor:
        """1 where the code of a class is positive, else 0 [C, code_dim]."""
        return (self.codes > 0).to(self.codes.dtype)

    def prediction_loss(self, activity: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.decoded(activity), self.signs[y])

    def similarity_loss(self, activity: Tensor, y: Tensor) -> Tensor:
        return functional.similarity_matching_loss(vectors(self.pool(activity)), self.codes[y])


def pooling(shape: Shape, most: int) -> tuple[nn.Module, Shape]:
    """Average pooling of a map to at most `most` numbers, and the pooled shape.

    Height and width are halved in turn, down to one position, regardless of the number of channels.
    """
    if len(shape) == 1:
        return nn.Identity(), shape
    channels, *cells = shape
    side = 0
    while channels * cells[0] * cells[1] > most and max(cells) > 1:
        cells[side] = math.ceil(cells[side] / 2)
        side = 1 - side
    pooled = (channels, *cells)
    return nn.Identity() if pooled == shape else GridPool((cells[0], cells[1])), pooled


def comparison(shape: Shape) -> nn.Module:
    """The linear map or convolution before similarities are computed: [B, *shape] -> [B, *shape]."""
    width = shape[0]
    if len(shape) == 1:
        return nn.Linear(width, width, bias=False)
    return nn.Conv2d(width, width, 3, padding=1, bias=False)


def vectors(h: Tensor) -> Tensor:
    """The vectors [B, D] whose similarities are computed: the standard deviation of each channel of a map.

    Other activities and maps with at most three channels or a single position are flattened.
    """
    if h.dim() == 4 and h.shape[1] > 3 and h[0, 0].numel() > 1:
        return h.flatten(2).std(dim=2)
    return h.flatten(1)


def zeroed(linear: nn.Linear) -> nn.Linear:
    """The layer initialized to zero, so that all scores are equal at first."""
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
