"""Accuracy, information bound and confusion matrix of a trained method on one split."""

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hff import functional
from hff.data import Batches, DataSet, Examples
from hff.device import pick_device
from hff.errors import UserError, require, unknown
from hff.evaluation.accuracy import evaluation_mode, hits, is_scored
from hff.evaluation.calibration import Calibration, calibrate
from hff.methods import Method

Split = Literal["test", "validation", "train", "all"]


@dataclass(frozen=True)
class LayerResult:
    """The result of one layer."""

    layer: int
    accuracy: float
    top5: float | None
    """None if there are 5 classes or fewer."""
    bits: float
    """A lower bound on the information about the class in the scores (Eqs. 12-15), at most log2 C."""
    scale: float
    """The factor of the scores before the softmax of that bound."""


@dataclass(frozen=True)
class ClassResult:
    """The result of the final read-out on one class."""

    name: str
    samples: int
    precision: float
    """The share of correct predictions among those of this class; 0 if it is never predicted."""
    recall: float
    """The share of this class that is predicted correctly; 0 if the split has no sample of it."""
    f1: float
    """The harmonic mean of precision and recall."""


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`."""

    split: str
    samples: int
    classes: tuple[str, ...]
    accuracy: float
    """The accuracy of the final read-out."""
    top5: float | None
    layers: tuple[LayerResult, ...]
    confusion: tuple[tuple[int, ...], ...]
    """Sample counts of the final read-out: rows are true classes, columns are predicted classes."""
    scale_from: Literal["validation", "train"]
    """The split that the scales of the layers were fitted on. The bound holds for any scale."""
    unscored: tuple[int, ...] = ()
    """How many samples of each class are not in `confusion`, because their scores are not finite; empty if
    there are none."""

    def to_json(self) -> dict[str, Any]:
        """The result as a dictionary of lists and numbers."""
        per_class = [asdict(each) for each in self.per_class]
        return {**asdict(self), "balanced_accuracy": self.balanced_accuracy, "per_class": per_class}

    @property
    def per_class(self) -> tuple[ClassResult, ...]:
        """Precision, recall and F1 of each class."""
        results = []
        for i, name in enumerate(self.classes):
            right, samples = self.confusion[i][i], sum(self.confusion[i])
            samples += self.unscored[i] if self.unscored else 0
            predicted = sum(row[i] for row in self.confusion)
            f1 = 2 * right / max(1, samples + predicted)
            results.append(ClassResult(name, samples, right / max(1, predicted), right / max(1, samples), f1))
        return tuple(results)

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that the split has samples of."""
        recalls = [each.recall for each in self.per_class if each.samples]
        return sum(recalls) / max(1, len(recalls))

    def most_confused(self, count: int = 10) -> list[tuple[str, str, int]]:
        """The most frequent errors as (true class, predicted class, number of samples)."""
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
    calibration: Calibration | None = None,
) -> Evaluation:
    """Evaluates a method on a split. Moves the method to the device and restores its training mode.

    A sample whose scores are not finite has no prediction: it counts as wrong, and a warning tells how many
    there are.

    Args:
        method: the method.
        data: the data set.
        split: the split to evaluate on; "all" is all splits together, for data that was not trained on.
        device: the device to compute on; "auto" is the fastest one.
        batch_size: the number of samples in a batch.
        calibration: the scales of the layers. By default, they are fitted with `calibrate`.
    """
    device = pick_device(device)
    require(isinstance(method, Method), f"evaluate takes a method, such as load_method(run), not {method!r}.")
    require(isinstance(data, DataSet), f"evaluate takes a DataSet, such as load_data('mnist'), not {data!r}.")
    method.check_data(data.in_shape, len(data.classes), data.name)
    examples = examples_of(data, split)
    method.to(device)
    calibration = calibration or calibrate(method, data, device=device, batch_size=batch_size)
    layers: dict[int, Tally] = {}
    final = Tally(len(data.classes), 1.0)
    confusion = torch.zeros(len(data.classes) ** 2, dtype=torch.int64)
    batches = Batches.in_order(examples, data.preprocessing, batch_size)
    with evaluation_mode(method):
        for batch in batches.epoch(0):
            batch = batch.to(device)
            found = dict(method.layer_scores(batch.x))
            for layer, scores in found.items():
                tally = layers.setdefault(layer, Tally(len(data.classes), calibration.layers.get(layer, 1.0)))
                tally.add(scores, batch.y)
            scores = method.combine_scores(found)
            final.add(scores, batch.y)
            cells = (batch.y * len(data.classes) + scores.argmax(1))[is_scored(scores)]
            confusion += torch.bincount(cells.cpu(), minlength=len(confusion))
    for layer, tally in sorted(layers.items()):
        if unscored := int(tally.unscored.sum()):
            warnings.warn(
                f"The scores of layer {layer} are not finite for {unscored} of {len(examples)} {split} "
                "samples, which count as wrong; look for outliers in the data.",
                stacklevel=2,
            )
            break
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
        scale_from=calibration.split,
        unscored=tuple(final.unscored.tolist()) if final.unscored.any() else (),
    )


class Tally:
    """Accumulates counts over the batches of a split, so that scores are not stored."""

    def __init__(self, classes: int, scale: float) -> None:
        self.scale = scale
        self.labels = torch.zeros(classes, dtype=torch.int64)
        self.unscored = torch.zeros(classes, dtype=torch.int64)
        """The labels of the samples whose scores are not finite."""
        self.hits = 0
        self.hits5 = 0
        self.nats = 0.0

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Adds a batch of scores [B, C] and labels [B]."""
        scored = is_scored(scores)
        self.hits += int(hits(scores, labels).sum())
        order = scores.topk(min(5, scores.shape[1]), dim=1).indices
        self.hits5 += int((order == labels.unsqueeze(1))[scored].sum())
        # A sample without a prediction gives the same probability to all classes.
        scores = scores.where(scored.unsqueeze(1), 0.0)
        self.nats += float(functional.cross_entropy(self.scale * scores, labels)) * len(labels)
        self.labels += torch.bincount(labels.cpu(), minlength=len(self.labels))
        self.unscored += torch.bincount(labels[~scored].cpu(), minlength=len(self.labels))

    def accuracy(self) -> float:
        return self.hits / int(self.labels.sum())

    def top5(self) -> float | None:
        return self.hits5 / int(self.labels.sum()) if len(self.labels) > 5 else None

    def bits(self) -> float:
        """`functional.information_bound` of all scores added so far."""
        count = int(self.labels.sum())
        entropy = float(torch.special.entr(self.labels / count).sum())
        return (entropy - self.nats / count) / math.log(2)


def examples_of(data: DataSet, split: str) -> Examples:
    """The examples of a split; "all" is all splits together."""
    if split not in get_args(Split):
        raise unknown("split", split, get_args(Split))
    examples: Examples | None = data.labeled if split == "all" else getattr(data, split)
    if examples is None or len(examples) == 0:
        raise UserError(f"The data set {data.name!r} has no {split} split.")
    return examples
