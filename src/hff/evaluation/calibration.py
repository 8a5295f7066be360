"""Probabilities from scores: one scale for each layer, fitted on held-out data."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor

from hff import functional
from hff.batch import Batch
from hff.data import Batches, DataSet
from hff.evaluation.accuracy import evaluation_mode
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
    device = torch.device(device)
    examples = data.train if data.validation is None else data.validation
    # A random subset, because the examples may be sorted by class.
    chosen = permutation(len(examples), "scale")[:MAX_SAMPLES].sort().values
    batches = Batches.in_order(examples.subset(chosen), data.preprocessing, batch_size)
    layers, final, labels = _all_scores(method.to(device), batches.epoch(0), device)
    # If `doubt` were 0, a few samples that are all classified correctly would give an infinite scale.
    doubt = 1 / (len(chosen) + 1)
    return Calibration(
        {layer: functional.fit_scale(scores, labels, doubt) for layer, scores in layers.items()},
        functional.fit_scale(final, labels, doubt),
        "train" if data.validation is None else "validation",
    )


def _all_scores(
    method: Method, batches: Iterable[Batch], device: torch.device
) -> tuple[dict[int, Tensor], Tensor, Tensor]:
    """The scores [N, C] of each layer, the final scores [N, C], and the labels [N]."""
    collected: dict[int, list[Tensor]] = {}
    final, labels = [], []
    with evaluation_mode(method):
        for batch in batches:
            batch = batch.to(device)
            labels.append(batch.y.cpu())
            found = dict(method.layer_scores(batch.x))
            for layer, scores in found.items():
                collected.setdefault(layer, []).append(scores.cpu())
            final.append(method.combine_scores(found).cpu())
    layers = {layer: torch.cat(scores) for layer, scores in sorted(collected.items())}
    return layers, torch.cat(final), torch.cat(labels)
