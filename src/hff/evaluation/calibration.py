"""Probabilities from scores: one scale for each layer, fitted on held-out data."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor

from hff import functional
from hff.batch import Batch
from hff.data import Batches, DataSet
from hff.device import pick_device
from hff.evaluation.accuracy import evaluation_mode, is_scored
from hff.methods import Method
from hff.randomness import permutation

MAX_SAMPLES = 5000
"""This many samples suffice to fit one number, and the scores of all layers fit into memory."""


@dataclass(frozen=True)
class Calibration:
    """The factors that turn scores into probabilities: softmax(scale * scores)."""

    layers: Mapping[int, float]
    """The scale of each layer that has scores."""
    read_out: float
    """The scale of the final scores."""
    split: Literal["validation", "train"]
    """The split that the scales were fitted on."""

    def probabilities(self, scores: Tensor, layer: int | None = None) -> Tensor:
        """The probability of each class [B, C], from the scores of a layer or, with None, the final ones."""
        scale = self.read_out if layer is None else self.layers.get(layer, 1.0)
        return torch.softmax(scale * scores.double(), dim=1)

    def to_json(self) -> dict[str, Any]:
        """The inverse of `from_json`."""
        return {**asdict(self), "layers": {str(layer): scale for layer, scale in self.layers.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """A calibration from what `to_json` returned."""
        layers = {int(layer): scale for layer, scale in content["layers"].items()}
        return cls(layers, content["read_out"], content["split"])


def calibrate(
    method: Method, data: DataSet, *, device: torch.device | str = "cpu", batch_size: int = 250
) -> Calibration:
    """Fits the scale of every layer and of the final scores on the validation split.

    Without a validation split, the training split is used, and the probabilities are too high. At most
    `MAX_SAMPLES` random samples are used. Moves the method to the device and restores its training mode.
    """
    device = pick_device(device)
    examples = data.train if data.validation is None else data.validation
    # A random subset, because the examples may be sorted by class.
    chosen = permutation(len(examples), "scale")[:MAX_SAMPLES].sort().values
    batches = Batches.in_order(examples.subset(chosen), data.preprocessing, batch_size)
    scores = _all_scores(method.to(device), batches.epoch(0), device)
    # If `doubt` were 0, a few samples that are all classified correctly would give an infinite scale.
    doubt = 1 / (len(chosen) + 1)
    scales = {layer: functional.fit_scale(*each, doubt) for layer, each in scores.items()}
    read_out = scales.pop(None)
    layers = {layer: scale for layer, scale in scales.items() if layer is not None}
    return Calibration(layers, read_out, "train" if data.validation is None else "validation")


def _all_scores(
    method: Method, batches: Iterable[Batch], device: torch.device
) -> dict[int | None, tuple[Tensor, Tensor]]:
    """The finite scores [N, C] of each layer and, under None, the final ones, with their labels [N]."""
    collected: dict[int | None, list[tuple[Tensor, Tensor]]] = {}
    with evaluation_mode(method):
        for batch in batches:
            batch = batch.to(device)
            layers = dict(sorted(method.layer_scores(batch.x)))
            for layer, scores in [*layers.items(), (None, method.combine_scores(layers))]:
                scored = is_scored(scores)
                collected.setdefault(layer, []).append((scores[scored].cpu(), batch.y[scored].cpu()))
    return {
        layer: (torch.cat([scores for scores, _ in parts]), torch.cat([labels for _, labels in parts]))
        for layer, parts in collected.items()
    }
