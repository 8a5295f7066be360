"""What every layer answers on a split, and the images that tell most about it."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from hff.data import Batches, DataSet
from hff.errors import UserError, unknown
from hff.evaluation import Calibration
from hff.evaluation.accuracy import evaluation_mode, is_scored
from hff.evaluation.evaluate import examples_of
from hff.methods import Method

Kind = Literal["right", "late", "wrong", "hardest"]
KINDS = {
    "right": "right in all layers",
    "late": "wrong in a lower layer, right in the end",
    "wrong": "wrong in the end",
    "hardest": "the lowest probability of the true class",
}
"""The kinds of images, and what they mean."""


@dataclass(frozen=True)
class LayerAnswers:
    """The answers of one layer, or of the final read-out, for the N samples of a split."""

    predicted: Tensor
    """The class with the highest score [N]; -1 if the scores are not finite."""
    confidence: Tensor
    """The probability of that class [N]."""
    own: Tensor
    """The probability of the true class [N]."""


@dataclass(frozen=True)
class Answers:
    """The answers of all layers on a split."""

    split: str
    labels: Tensor
    """The true classes [N]."""
    layers: dict[int, LayerAnswers]
    """By layer, for the layers that have scores."""
    final: LayerAnswers
    """The prediction of the method."""

    def right(self, layer: int | None = None) -> Tensor:
        """Whether a layer, or with None the method, is right [N]."""
        answers = self.final if layer is None else self.layers[layer]
        return answers.predicted == self.labels

    def choose(self, kind: Kind, count: int = 4) -> Tensor:
        """The numbers of at most `count` images of a kind, in an order that depends on nothing but the data.

        "right" begins with the surest images and "late" and "wrong" with those that were most surely wrong,
        each class in turn. "hardest" begins with the lowest probability of the true class.
        """
        if kind not in get_args(Kind):
            raise unknown("kind of images", kind, get_args(Kind))
        right = self.right()
        layers = torch.stack([self.right(layer) for layer in self.layers])
        if kind == "right":
            chosen, rank = layers.all(0) & right, -self.final.own
        elif kind == "late":
            if len(self.layers) < 2:
                raise UserError("Only the last layer has scores, so no image is corrected by a later layer.")
            below = torch.stack([each.own for each in self.layers.values()]).amin(0)
            chosen, rank = right & ~layers.all(0), below
        else:
            chosen, rank = ~right, self.final.own
        found = torch.nonzero(chosen).flatten()
        found = found[rank[found].argsort(stable=True)]
        return (found if kind == "hardest" else self._by_turns(found))[:count]

    def _by_turns(self, found: Tensor) -> Tensor:
        """The same images, so that the first ones of each class come first."""
        seen: dict[int, int] = {}
        turns = []
        for label in self.labels[found].tolist():
            turns.append(seen.get(label, 0))
            seen[label] = turns[-1] + 1
        return found[torch.tensor(turns, dtype=torch.int64).argsort(stable=True)]


@dataclass(frozen=True)
class Reliability:
    """How often a layer is right when it says that it is: one row for each bin of the confidence."""

    low: tuple[float, ...]
    """The lower bounds of the bins."""
    samples: tuple[int, ...]
    confidence: tuple[float, ...]
    """The mean confidence in each bin; 0 for an empty one."""
    accuracy: tuple[float, ...]
    """The share of correct predictions in each bin; 0 for an empty one."""

    @property
    def error(self) -> float:
        """The expected calibration error: the mean distance of confidence and accuracy over the samples."""
        rows = zip(self.samples, self.confidence, self.accuracy, strict=True)
        return sum(n * abs(sure - right) for n, sure, right in rows) / max(1, sum(self.samples))


def reliability(answers: Answers, layer: int | None = None, bins: int = 10) -> Reliability:
    """The reliability of a layer or, with None, of the method."""
    confidence = (answers.final if layer is None else answers.layers[layer]).confidence
    right = answers.right(layer).double()
    place = (confidence * bins).long().clamp(0, bins - 1)
    samples = torch.bincount(place, minlength=bins)
    sure = torch.bincount(place, confidence.double(), minlength=bins) / samples.clamp_min(1)
    share = torch.bincount(place, right, minlength=bins) / samples.clamp_min(1)
    bounds = tuple(i / bins for i in range(bins))
    return Reliability(bounds, tuple(samples.tolist()), tuple(sure.tolist()), tuple(share.tolist()))


def answers_on(
    method: Method,
    data: DataSet,
    split: str = "test",
    *,
    calibration: Calibration,
    device: torch.device | str = "cpu",
    batch_size: int = 250,
) -> Answers:
    """Computes the answers of every layer of a method on a split.

    Args:
        method: the method.
        data: the data.
        split: the split; "all" is all splits together.
        calibration: the scales that turn scores into probabilities.
        device: the device to compute on.
        batch_size: the number of samples in a batch.
    """
    examples = examples_of(data, split)
    parts: dict[int | None, list[LayerAnswers]] = {}
    device = torch.device(device)
    method.to(device)
    with evaluation_mode(method):
        for batch in Batches.in_order(examples, data.preprocessing, batch_size).epoch(0):
            batch = batch.to(device)
            scores: dict[int | None, Tensor] = dict(sorted(method.layer_scores(batch.x)))
            scores[None] = method.combine_scores({k: v for k, v in scores.items() if k is not None})
            for layer, each in scores.items():
                parts.setdefault(layer, []).append(_answers(each, batch.y, calibration, layer))
    joined = {layer: _joined(each) for layer, each in parts.items()}
    final = joined.pop(None)
    layers = {layer: each for layer, each in joined.items() if layer is not None}
    return Answers(split, examples.labels, layers, final)


def _answers(scores: Tensor, labels: Tensor, calibration: Calibration, layer: int | None) -> LayerAnswers:
    scored = is_scored(scores)
    shares = calibration.probabilities(scores.where(scored.unsqueeze(1), 0.0), layer)
    best = shares.max(1)
    predicted = torch.where(scored, scores.argmax(1), -1)
    own = shares.gather(1, labels.unsqueeze(1))[:, 0]
    return LayerAnswers(predicted.cpu(), best.values.cpu(), own.cpu())


def _joined(parts: list[LayerAnswers]) -> LayerAnswers:
    return LayerAnswers(
        torch.cat([each.predicted for each in parts]),
        torch.cat([each.confidence for each in parts]),
        torch.cat([each.own for each in parts]),
    )
