"""Marginal contrastive Forward-Forward: each layer pulls samples of a class together, up to a margin."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.early_exit import NarrowingScores
from hff.methods.families.local import LocalMethod, classifier_step
from hff.methods.families.pairs import in_parts, with_every_label
from hff.methods.method import Method, MethodInfo, ParameterSet, Stage, register
from hff.modules.heads import Head
from hff.modules.labels import LabelEncoding, one_hot_encoding, wrong_labels
from hff.networks import Network

MarginSchedule = Literal["linear", "cosine", "parabolic", "exponential"]


@register
class FFCM(LocalMethod):
    """Each layer learns by the cosines between the samples of a batch; a linear classifier is trained last.

    Args:
        temperature: divisor of the cosines (tau in the paper).
        first_margin: margin of the first layer; the cosine of two samples of a class needs to reach only 1
            minus the margin.
        last_margin: margin of the last layer.
        margin_schedule: how the margin changes from the first to the last layer.
        views: views of each sample in a batch; with 2, a sample also attracts its own other view, which needs
            augmentation.
        grid: side of the grid that a map is average-pooled to for loss and classifier; 1 is global pooling.
        head_epochs: share of the epochs, at least one, in which the classifier learns on frozen layers.
        head_learning_rate: factor of the learning rate for the classifier.
        label_overlay: whether to write labels into the inputs; inputs with wrong labels repel all others, and
            a prediction tries every class.
        label_intensity: the value that marks the label in the input.
    """

    name = "ffcm"
    info = MethodInfo(
        title="Marginal contrastive Forward-Forward",
        paper="Aghagolzadeh and Ezoji 2024, Marginal Contrastive Loss: A Step Forward for Forward-Forward; "
        "its follow-up is arXiv 2502.00571",
        supports="any",
        data_parallel=False,
        learning_rate=3e-3,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        temperature: float = 0.15,
        first_margin: float = 0.4,
        last_margin: float = 0.1,
        margin_schedule: MarginSchedule = "linear",
        views: Literal[1, 2] = 1,
        grid: int = 1,
        head_epochs: float = 0.2,
        head_learning_rate: float = 3.0,
        label_overlay: bool = False,
        label_intensity: float = 3.0,
    ) -> None:
        require(temperature > 0, f"temperature must be positive, not {temperature:g}.")
        require(
            0 < head_epochs < 1,
            f"head_epochs is a share and must be between 0 and 1, not {head_epochs:g}.",
        )
        encoding = one_hot_encoding(network.in_shape, classes, label_intensity) if label_overlay else None
        super().__init__(replace(network, in_shape=encoding.out_shape) if encoding else network, classes)
        self.encoding = encoding
        self.fixed_inputs = encoding is None
        self.temperature = temperature
        self.margins = margins(first_margin, last_margin, len(self.blocks), margin_schedule)
        self.views = views
        self.head_epochs = head_epochs
        self.head_learning_rate = head_learning_rate
        self.pools = nn.ModuleList(
            Head(self.block(layer).out_shape, grid=grid, channels=0) for layer in range(len(self.blocks))
        )
        top = self.pools[-1]
        assert isinstance(top, Head)
        self.classifier: nn.Linear = nn.Linear(top.dim, classes)

    @property
    def passes(self) -> int:
        return self.classes if self.encoding else 1

    def stages(self, epochs: int) -> list[Stage]:
        share = max(1, round(self.head_epochs * epochs))
        layers = tuple(range(len(self.blocks)))
        # A budget of one epoch is exceeded, because layers and classifier each need at least one.
        return [
            Stage("layers", layers, max(1, epochs - share), predicts=False),
            Stage("classifier", (), share),
        ]

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        if stage.blocks:
            return Method.parameter_groups(self, stage)
        return {"classifier": [ParameterSet(list(self.classifier.parameters()), self.head_learning_rate)]}

    def training_inputs(self, batch: Batch) -> Tensor:
        """All views [V B, ...]; with an overlay, with true labels and then with wrong ones [2 V B, ...]."""
        x = torch.cat([batch.x, *batch.other_views])
        if self.encoding is None:
            return x
        views = 1 + len(batch.other_views)
        labels = torch.cat([batch.y.repeat(views), self._wrong(batch).repeat(views)])
        labeled: Tensor = self.encoding(torch.cat([x, x]), labels)
        return labeled

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        return super().next_input(layer, functional.unit_power(features), h)

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        y = batch.y.repeat(1 + len(batch.other_views))
        true, wrong = functional.project(self.pools[layer](features)).tensor_split([len(y)])
        return functional.marginal_contrastive_loss(true, y, self.margins[layer], self.temperature, wrong)

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if stage.blocks:
            yield from Method.update(self, batch, stage)
        elif self.encoding is None:
            with torch.no_grad():
                features = self._top_features(batch.x, batch.depth)
            yield "classifier", classifier_step(self.classifier, features, batch.y)
        else:
            labels = torch.cat([batch.y, self._wrong(batch)])
            with torch.no_grad():
                features = self._top_features(self.encoding(torch.cat([batch.x, batch.x]), labels))
            true, wrong = self._label_scores(features, labels).chunk(2)
            loss = functional.symmetric_pair_loss(true, wrong, sharpness=1.0)
            loss.backward()
            yield "classifier", loss.detach()

    def scores_of(self, layers: Sequence[int], x: Tensor, depth: int = 0) -> NarrowingScores:
        if self.encoding is None:
            yield len(self.blocks) - 1, self.classifier(self._top_features(x, depth))
        else:
            yield from in_parts(self, partial(self._candidate_scores, self.encoding), x)

    def _candidate_scores(self, encoding: LabelEncoding, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        inputs, labels = with_every_label(x, encoding, self.classes)
        scores = self._label_scores(self._top_features(inputs), labels)
        yield len(self.blocks) - 1, scores.view(-1, self.classes)

    def _label_scores(self, features: Tensor, labels: Tensor) -> Tensor:
        """The classifier's scores [N] of the labels [N] that were written into the inputs."""
        scores: Tensor = self.classifier(features)
        return scores.gather(1, labels.unsqueeze(1)).squeeze(1)

    def _wrong(self, batch: Batch) -> Tensor:
        return wrong_labels(batch.y, self.classes, batch.draw("negatives"))

    def _top_features(self, h: Tensor, depth: int = 0) -> Tensor:
        """The inputs of the classifier [B, ...]: the output of the last layer, pooled, at unit power."""
        for layer in range(depth, len(self.blocks)):
            h = self.forward_block(layer, h)
        return functional.unit_power(self.pools[-1](h))


def margins(first: float, last: float, depth: int, schedule: MarginSchedule) -> list[float]:
    """The margin of each layer, from `first` to `last`; a single layer has `first`."""
    if min(first, last) < 0 or (schedule == "exponential" and min(first, last) == 0):
        raise UserError(
            f"Margins must not be negative, nor 0 in an exponential schedule, but are {first:g} and {last:g}."
        )
    shares = [layer / max(1, depth - 1) for layer in range(depth)]
    if schedule == "exponential":
        return [first * (last / first) ** share for share in shares]
    if schedule == "cosine":
        left = [(1 + math.cos(math.pi * share)) / 2 for share in shares]
    else:
        left = [(1 - share) ** (2 if schedule == "parabolic" else 1) for share in shares]
    return [last + (first - last) * rest for rest in left]
