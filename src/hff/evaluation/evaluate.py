"""Everything that one pass over a split tells about a trained method."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from hff import functional
from hff.batch import Batch
from hff.data import Batches, DataSet, Examples
from hff.errors import UserError, unknown
from hff.evaluation.accuracy import evaluation_mode
from hff.methods import Method
from hff.randomness import permutation

Split = Literal["test", "validation", "train"]

SAMPLES_FOR_SCALE = 5000
"""Enough to fit a single number; the scores of all layers must fit into memory."""


@dataclass(frozen=True)
class LayerResult:
    """How one layer does on its own."""

    layer: int
    accuracy: float
    top5: float | None
    """None where there are 5 classes or fewer."""
    bits: float
    """A lower bound of what the layer's scores tell about the class (Eqs. 12-15); log2 C is all."""
    scale: float
    """What the scores were multiplied with before the softmax of that bound."""


@dataclass(frozen=True)
class Evaluation:
    """The answer of `evaluate`."""

    split: str
    samples: int
    classes: tuple[str, ...]
    accuracy: float
    """Of the final read-out."""
    top5: float | None
    layers: tuple[LayerResult, ...]
    confusion: tuple[tuple[int, ...], ...]
    """Samples of the final read-out: the row is the true class, the column the predicted one."""
    scale_from: Literal["validation", "train"]
    """The split that the scales of the layers were fitted on; the bound holds whatever it is."""

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return asdict(self)

    def most_confused(self, count: int = 10) -> list[tuple[str, str, int]]:
        """The pairs (true class, predicted class, samples) that are confused most often."""
        errors = torch.tensor(self.confusion).fill_diagonal_(0)
        amounts, places = errors.flatten().topk(min(count, errors.numel()))
        found = zip(amounts.tolist(), places.tolist(), strict=True)
        width = len(self.classes)
        return [(self.classes[p // width], self.classes[p % width], n) for n, p in found if n > 0]


def evaluate(
    method: Method,
    data: DataSet,
    split: Split = "test",
    *,
    device: torch.device | str = "cpu",
    batch_size: int = 250,
) -> Evaluation:
    """Measures a method on a split of its data; the method is moved to the device and keeps its mode."""
    device = torch.device(device)
    examples = _examples(data, split)
    method.to(device)
    scales = _fit_scales(method, data, device, batch_size)
    layers: dict[int, Tally] = {}
    final = Tally(len(data.classes), 1.0)
    confusion = torch.zeros(len(data.classes) ** 2, dtype=torch.int64)
    batches = Batches.in_order(examples, data.preprocessing, batch_size)
    with evaluation_mode(method):
        for batch in batches.epoch(0):
            batch = batch.to(device)
            found = dict(method.layer_scores(batch.x))
            for layer, scores in found.items():
                tally = layers.setdefault(layer, Tally(len(data.classes), scales.get(layer, 1.0)))
                tally.add(scores, batch.y)
            scores = method.combine_scores(found)
            final.add(scores, batch.y)
            cells = batch.y * len(data.classes) + scores.argmax(1)
            confusion += torch.bincount(cells.cpu(), minlength=len(confusion))
    return Evaluation(
        split=split,
        samples=len(examples),
        classes=data.classes,
        accuracy=final.accuracy(),
        top5=final.top5(),
        layers=tuple(
            LayerResult(layer, tally.accuracy(), tally.top5(), tally.bits(), tally.scale)
            for layer, tally in sorted(layers.items())
        ),
        confusion=tuple(map(tuple, confusion.view(-1, len(data.classes)).tolist())),
        scale_from="train" if data.validation is None else "validation",
    )


class Tally:
    """Counts over the batches of a split, so that no scores are kept."""

    def __init__(self, classes: int, scale: float) -> None:
        self.scale = scale
        self.labels = torch.zeros(classes, dtype=torch.int64)
        self.hits = 0
        self.hits5 = 0
        self.nats = 0.0

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Adds a batch: scores [B, C], labels [B]."""
        order = scores.topk(min(5, scores.shape[1]), dim=1).indices
        found = order == labels.unsqueeze(1)
        self.hits += int(found[:, 0].sum())
        self.hits5 += int(found.sum())
        self.nats += float(functional.cross_entropy(self.scale * scores, labels)) * len(labels)
        self.labels += torch.bincount(labels.cpu(), minlength=len(self.labels))

    def accuracy(self) -> float:
        return self.hits / int(self.labels.sum())

    def top5(self) -> float | None:
        return self.hits5 / int(self.labels.sum()) if len(self.labels) > 5 else None

    def bits(self) -> float:
        """`functional.information_bound` of all the scores seen."""
        count = int(self.labels.sum())
        entropy = float(torch.special.entr(self.labels / count).sum())
        return (entropy - self.nats / count) / math.log(2)


def _examples(data: DataSet, split: str) -> Examples:
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    if split not in splits:
        raise unknown("split", split, splits)
    examples = splits[split]
    if examples is None or len(examples) == 0:
        raise UserError(f"The data set {data.name!r} has no {split} split.")
    return examples


def _fit_scales(method: Method, data: DataSet, device: torch.device, batch_size: int) -> dict[int, float]:
    """The scale of each layer, fitted on validation samples, or on training samples for lack of those."""
    examples = data.train if data.validation is None else data.validation
    # A random part, because the examples may lie sorted by class.
    chosen = permutation(len(examples), "scale")[:SAMPLES_FOR_SCALE].sort().values
    batches = Batches.in_order(examples.subset(chosen), data.preprocessing, batch_size)
    # One sample's worth of doubt: a few samples that are all right do not make the next one certain.
    doubt = 1 / (len(chosen) + 1)
    return {
        layer: functional.fit_scale(scores, labels, doubt)
        for layer, (scores, labels) in _all_scores(method, batches.epoch(0), device).items()
    }


def _all_scores(
    method: Method, batches: Iterable[Batch], device: torch.device
) -> dict[int, tuple[Tensor, Tensor]]:
    """For each layer the scores [N, C] and the labels [N]."""
    collected: dict[int, list[Tensor]] = {}
    labels = []
    with evaluation_mode(method):
        for batch in batches:
            batch = batch.to(device)
            labels.append(batch.y.cpu())
            for layer, scores in method.layer_scores(batch.x):
                collected.setdefault(layer, []).append(scores.cpu())
    return {layer: (torch.cat(scores), torch.cat(labels)) for layer, scores in collected.items()}
