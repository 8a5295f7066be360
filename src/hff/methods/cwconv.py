"""Channel-wise competition: every class owns a group of channels, and the groups compete in goodness."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeVar

from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.families.local import LocalMethod
from hff.methods.method import Form, MethodInfo, ReadOut, Stage, register
from hff.networks import Network

Number = TypeVar("Number", int, float)


@register
class CwConv(LocalMethod):
    """The channels of a convolution are divided among the classes; a group's mean square is its score.

    Args:
        loss: cross-entropy of the goodness of all groups (competition), or a loss that raises the true
            group's goodness above a threshold and lowers the mean of all others below it (threshold).
        threshold: the threshold of the goodness, for loss threshold.
        predictor: a linear classifier on the output of the last layer (softmax), or the layer's goodness.
        classifier_learning_rate: factor of the learning rate for that classifier.
        classes_per_group: number of consecutive classes that share a group of channels, for each layer or
            for all; must be 1 in the last layer.
        starts: share of the epochs after which a layer starts to learn, for each layer or for all.
        ends: share of the epochs after which a layer is frozen, for each layer or for all; the learning rate
            schedule restarts whenever a layer starts or is frozen.
        read_out: layers whose scores predict; the classifier, if any, gives the scores of the last layer.
    """

    name = "cwconv"
    info = MethodInfo(
        title="Channel-wise Competitive Learning",
        paper="Papachristodoulou et al. 2024, Convolutional Channel-wise Competitive Learning for the "
        "Forward-Forward Algorithm (arXiv 2312.12668)",
        supports="any",
        learning_rate=3e-3,
        form=Form({"norm": "batch", "norm_at": "output"}),
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        loss: Literal["competition", "threshold"] = "competition",
        threshold: float = 2.0,
        predictor: Literal["softmax", "goodness"] = "softmax",
        classifier_learning_rate: float = 1.0,
        classes_per_group: tuple[int, ...] = (1,),
        starts: tuple[float, ...] = (0.0,),
        ends: tuple[float, ...] = (1.0,),
        read_out: ReadOut = "last",
    ) -> None:
        super().__init__(network, classes, read_out=read_out)
        self.competes = loss == "competition"
        self.threshold = threshold
        depth = len(self.blocks)
        self.classes_per_group = _for_each_layer("classes_per_group", classes_per_group, depth)
        self.groups = [_groups(classes, size) for size in self.classes_per_group]
        if self.classes_per_group[-1] != 1:
            raise UserError("The last layer must separate all classes, so its classes_per_group must be 1.")
        for row, groups in zip(network.rows, self.groups, strict=True):
            if row.width % groups:
                raise UserError(_indivisible(row.width, groups))
        first, last = _for_each_layer("starts", starts, depth), _for_each_layer("ends", ends, depth)
        self.spans = list(zip(first, last, strict=True))
        require(
            all(0 <= start < end <= 1 for start, end in self.spans),
            "The start of every layer must be below its end, and both must be shares from 0 to 1.",
        )
        if predictor == "softmax":
            self.classifier = nn.Linear(self.block(depth - 1).out_features, classes)
            self.classifier_learning_rate = classifier_learning_rate

    @classmethod
    def unsupported_reason(cls, network: Network, classes: int) -> str | None:
        width = network.out_shapes()[-1][0]
        if not all(len(shape) == 3 for shape in network.out_shapes()):
            return (
                f"{cls.info.title} divides the channels of each layer among the classes, but network "
                f"{network.name!r} has layers without channels; choose a convolutional network."
            )
        return _indivisible(width, classes) if width % classes else None

    def stages(self, epochs: int) -> list[Stage]:
        """One stage for each span of epochs in which the same blocks learn."""
        spans = []
        for start, end in self.spans:
            first = min(round(start * epochs), epochs - 1)
            spans.append((first, max(round(end * epochs), first + 1)))
        stages = []
        for begin, end in pairwise(sorted({0, epochs}.union(*spans))):
            blocks = tuple(layer for layer, (first, last) in enumerate(spans) if first <= begin < last)
            if blocks or self.classifier is not None:
                name = f"layers {', '.join(map(str, blocks))}" if blocks else "classifier"
                stages.append(Stage(name, blocks, end - begin))
        return stages

    def goodness(self, layer: int, features: Tensor) -> Tensor:
        """The goodness [B, G] of the layer's groups of channels."""
        return functional.group_goodness(features, self.groups[layer])

    def scores(self, layer: int, features: Tensor) -> Tensor:
        """The goodness of each class's group; classes that share a group have equal scores."""
        shared = self.classes_per_group[layer]
        goodness = self.goodness(layer, features)
        return goodness if shared == 1 else goodness.repeat_interleave(shared, 1)[:, : self.classes]

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        goodness = self.goodness(layer, features)
        group = batch.y // self.classes_per_group[layer]
        if self.competes:
            return functional.cross_entropy(goodness, group)
        own = group.unsqueeze(1)
        others = goodness.scatter(1, own, 0.0).sum(1) / (self.groups[layer] - 1)
        return functional.forward_forward_loss(goodness.gather(1, own).squeeze(1), others, self.threshold)


def _for_each_layer(name: str, given: Sequence[Number], depth: int) -> list[Number]:
    """One number for each layer; a single one applies to all layers."""
    if len(given) not in (1, depth):
        raise UserError(
            f"{name} has {len(given)} numbers, but the network has {depth} layers: "
            "give one for each layer or one for all."
        )
    return list(given) * (depth // len(given))


def _groups(classes: int, size: int) -> int:
    require(1 <= size < classes, f"classes_per_group must be from 1 to {classes - 1}, not {size}.")
    return math.ceil(classes / size)


def _indivisible(width: int, groups: int) -> str:
    return (
        f"Channel-wise competition divides the channels of a layer evenly, but {width} channels are not "
        f"divisible by {groups} groups of classes; choose other numbers of channels."
    )
