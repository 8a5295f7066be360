"""Early exit: a sample is predicted by the first layer that is sure enough, and leaves the batch there."""

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from hff.errors import UserError, quoted, require

if TYPE_CHECKING:
    from hff.methods.method import Method

NarrowingScores = Generator[tuple[int, Tensor], Tensor | None, None]
"""Yields (layer, scores [B, C]), and takes the indices [K] of the samples to continue with; None: all."""


@dataclass(frozen=True)
class Guarantee:
    """What the calibration of thresholds promises, and the counts that it is based on.

    With probability at least 1 - delta over the calibration samples, at most a share epsilon of all samples
    is predicted correctly by the full network and wrongly with early exit.
    """

    epsilon: float
    delta: float
    samples: int
    """The number of calibration samples."""
    lost: int
    """How many of them the full network predicts correctly and early exit wrongly."""
    allowed: int
    """The largest number of lost samples that supports the promise; -1 if there are too few samples."""


@dataclass(frozen=True)
class EarlyExit:
    """The policy of early exit: how sure a layer must be to predict.

    A layer predicts the samples for which the probability of its best class, softmax(scale * scores), reaches
    the threshold. The read-out of the full network predicts all other samples.

    Args:
        threshold: one probability for all layers, or one for each layer by number; a layer without a
            threshold never predicts alone, so an empty mapping means the full network.
        scales: the factor of the scores of each layer; 1 for layers that are not given.
        guarantee: the promise of `calibrate_exit`; None for thresholds of your own.
    """

    threshold: float | Mapping[int, float]
    scales: Mapping[int, float] = field(default_factory=dict)
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        given = self.threshold
        for each in given.values() if isinstance(given, Mapping) else [given]:
            is_number = isinstance(each, int | float) and not isinstance(each, bool)
            require(
                is_number and 0 < each < 1,
                f"The threshold of early exit is a probability between 0 and 1, not {quoted(each)}.",
            )

    def threshold_of(self, layer: int) -> float | None:
        """The threshold of a layer; None if the layer never predicts alone."""
        return self.threshold.get(layer) if isinstance(self.threshold, Mapping) else self.threshold

    def confidence(self, layer: int, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The probability [B] of the best class and its index [B], from the scores [B, C] of a layer."""
        scale = self.scales.get(layer, 1.0)
        best = torch.softmax(scores if scale == 1 else scores * scale, 1).max(1)
        return best.values, best.indices

    def to_json(self) -> dict[str, Any]:
        """The inverse of `from_json`."""
        content = asdict(self)
        for name in ("threshold", "scales"):
            if isinstance(content[name], Mapping):
                content[name] = {str(layer): number for layer, number in content[name].items()}
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The policy from what `to_json` returned."""
        threshold, promise = content["threshold"], content["guarantee"]
        if isinstance(threshold, Mapping):
            threshold = {int(layer): number for layer, number in threshold.items()}
        scales = {int(layer): number for layer, number in content["scales"].items()}
        if promise is None:
            return cls(threshold, scales)
        return cls(
            threshold, scales, Guarantee(**{each.name: promise[each.name] for each in fields(Guarantee)})
        )


def chosen_exit(method: "Method", given: EarlyExit | float | bool) -> EarlyExit | None:
    """The policy that an argument `early_exit` stands for; None for the full network."""
    if isinstance(given, EarlyExit):
        return given
    if given is False:
        return None
    if given is not True:
        return EarlyExit(given)
    if method.early_exit is None:
        raise UserError(
            "early_exit=True needs calibrated thresholds: set method.early_exit = "
            "hff.calibrate_exit(method, data), or give a probability such as 0.9."
        )
    return method.early_exit


def first_sure_layers(method: "Method", x: Tensor, early_exit: EarlyExit) -> tuple[Tensor, Tensor]:
    """The class [B] of each input [B, ...], and the layer [B] that predicted it.

    Samples leave the batch after the layer that predicts them, and only the others are computed further.
    """
    read_out = method.read_out_layers
    top = max(read_out)
    thresholds = {layer: early_exit.threshold_of(layer) for layer in range(top)}
    exits = [layer for layer, threshold in thresholds.items() if threshold is not None]
    if isinstance(early_exit.threshold, Mapping) and not exits:
        return method(x).argmax(1), torch.full((len(x),), top, device=x.device)
    steps = method.narrowing_scores(sorted({*exits, *read_out}), x)
    layer, scores = next(steps)
    if layer >= top:
        raise no_exits(method)
    classes, layers, rows = None, None, None
    # The scores of the layers of the read-out so far, for the samples that are left.
    found: dict[int, Tensor] = {}
    while layer < top:
        kept = None
        if layer in read_out:
            found[layer] = scores
        if (threshold := thresholds[layer]) is not None:
            confidence, best = early_exit.confidence(layer, scores)
            sure = confidence >= threshold
            leaving = int(sure.sum())
            if leaving == len(sure) and rows is None:
                return best, torch.full_like(best, layer)
            if leaving:
                if classes is None or layers is None or rows is None:
                    classes, layers = torch.empty_like(best), torch.full_like(best, top)
                    rows = torch.arange(len(best), device=best.device)
                classes[rows[sure]], layers[rows[sure]] = best[sure], layer
                if leaving == len(sure):
                    return classes, layers
                kept = (~sure).nonzero().squeeze(1)
                rows = rows[kept]
                found = {each: scores[kept] for each, scores in found.items()}
        layer, scores = steps.send(kept)
    found[layer] = scores
    best = method.combine_scores(found).argmax(1)
    if classes is None or layers is None or rows is None:
        return best, torch.full_like(best, top)
    classes[rows] = best
    return classes, layers


def no_exits(method: "Method") -> UserError:
    """The error for a method without scores below its read-out."""
    return UserError(
        f"{method.info.title} has no scores in the layers below its read-out, so it has no early exit."
    )
