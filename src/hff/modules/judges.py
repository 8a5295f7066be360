"""Heads with the two losses of local error signals: predict the label, and match similarities."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff import functional
from hff.modules.feedback import FeedbackLinear
from hff.networks import Shape


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
