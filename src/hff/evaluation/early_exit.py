"""Early exit with a guarantee: thresholds such that the accuracy of the full network is nearly kept.

This is Learn then Test (Angelopoulos, Bates, Candes, Jordan and Lei 2021, arXiv 2110.01052) with exact
binomial tests in a fixed sequence. It makes no assumption on the network or on the distribution of the data;
the calibration samples and the samples to predict must come from the same distribution.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hff.data import Batches, DataSet, Examples
from hff.errors import UserError, require
from hff.evaluation.accuracy import evaluation_mode, hits
from hff.evaluation.calibration import calibrate
from hff.evaluation.evaluate import Split, examples_of
from hff.methods import Method
from hff.methods.early_exit import EarlyExit as EarlyExit
from hff.methods.early_exit import Guarantee, chosen_exit, no_exits
from hff.randomness import permutation

PATH: tuple[float, ...] = tuple(1 / (1 + math.exp(-odds / 10)) for odds in range(140, -61, -1))
"""The thresholds that are tested, from strict to loose; log-odds resolve probabilities close to 1."""
SCALE_SHARE = 0.2
"""The share of the validation split that the scales are fitted on; the thresholds use the rest."""


def calibrate_exit(
    method: Method,
    data: DataSet,
    epsilon: float = 0.005,
    delta: float = 0.05,
    *,
    device: torch.device | str = "cpu",
    batch_size: int = 250,
) -> EarlyExit:
    """The loosest threshold of early exit that nearly keeps the accuracy of the full network.

    With probability at least 1 - delta over the calibration samples, early exit loses at most a share epsilon
    of the samples: those that the full network predicts correctly and early exit wrongly. The loss of
    accuracy is at most that share, since early exit also corrects some predictions.

    A random fifth of the validation split is used to fit the scales that turn the scores of each layer into
    probabilities, and the rest to choose the threshold. If no threshold passes, for example because the
    validation split is small, a warning says so, and all samples take the full network.

    Moves the method to the device and restores its training mode.

    Args:
        method: a trained method with scores in several layers. The guarantee holds if the validation split
            was not used to train it or to choose between many of them.
        data: the data set, with a validation split.
        epsilon: the largest loss of accuracy; 0.005 is half a percentage point.
        delta: the probability that the loss is larger.
        device: the device to compute on.
        batch_size: the number of samples in a batch.
    """
    for name, share in {"epsilon": epsilon, "delta": delta}.items():
        require(0 < share < 1, f"{name} must be between 0 and 1, not {share}.")
    method.check_data(data.in_shape, len(data.classes), data.name)
    if data.validation is None or len(data.validation) < 2:
        raise UserError(
            f"Thresholds with a guarantee are chosen on validation samples, but data set {data.name!r} has "
            "none; set data.validation, or give a plain threshold such as 0.9."
        )
    fitted, held_out = _parts(data.validation)
    scales = calibrate(method, replace(data, validation=fitted), device=device, batch_size=batch_size).layers
    batches = Batches.in_order(held_out, data.preprocessing, batch_size)
    answers = layer_answers(method, EarlyExit({}, scales), batches, device)
    # The best layer was chosen on the same samples. Each possible choice gets its share of delta.
    choices = len(method.blocks) if method.read_out == "best" else 1
    allowed = allowed_losses(len(held_out), epsilon, delta / choices)
    threshold, lost = loosest_threshold(answers, allowed)
    if threshold is None:
        warnings.warn(_why_none(len(held_out), allowed, epsilon, delta / choices), stacklevel=2)
    guarantee = Guarantee(epsilon, delta, len(held_out), lost, allowed)
    thresholds = {} if threshold is None else dict.fromkeys(answers.layers, threshold)
    return EarlyExit(thresholds, scales, guarantee)


class Answers(NamedTuple):
    """What the layers below the read-out and the full network answer to N samples."""

    layers: Sequence[int]
    """The numbers of the L layers."""
    confidence: Tensor
    """The probability [N, L] of the best class of each layer."""
    right: Tensor
    """Whether that class is correct [N, L]."""
    full_right: Tensor
    """Whether the full network is correct [N]."""


def loosest_threshold(answers: Answers, allowed: int) -> tuple[float | None, int]:
    """The last threshold of `PATH` before the first one that loses too many samples, and how many it loses.

    The thresholds are tested from strict to loose. A threshold whose true loss is above epsilon passes its
    test with probability delta at most, and all looser ones depend on it. So the probability that a threshold
    with too large a loss is returned is at most delta, however many are tested.
    """
    chosen, lost = None, 0
    # No other samples can be lost.
    at_risk = answers.full_right & ~answers.right.all(1)
    confidence, right = answers.confidence[at_risk], answers.right[at_risk]
    for threshold in PATH:
        sure = confidence >= threshold
        first = sure.int().argmax(1, keepdim=True)
        losses = int((sure.any(1) & ~right.gather(1, first).squeeze(1)).sum())
        if losses > allowed:
            break
        chosen, lost = threshold, losses
    return chosen, lost


def allowed_losses(samples: int, epsilon: float, delta: float) -> int:
    """The largest k with P(X <= k) <= delta for X from Binomial(samples, epsilon); -1 if there is none.

    If the true share of lost samples is above epsilon, at most k of `samples` are lost with probability
    delta at most, so k lost samples or fewer are evidence for a share of at most epsilon.
    """
    total = 0.0
    for k in range(samples + 1):
        total += math.exp(
            math.lgamma(samples + 1)
            - math.lgamma(k + 1)
            - math.lgamma(samples - k + 1)
            + k * math.log(epsilon)
            + (samples - k) * math.log1p(-epsilon)
        )
        if total > delta:
            return k - 1
    return samples


def layer_answers(
    method: Method, early_exit: EarlyExit, batches: Batches, device: torch.device | str
) -> Answers:
    """The answers of all layers below the read-out and of the full network to all samples."""
    device = torch.device(device)
    top = max(method.read_out_layers)
    confidence: dict[int, list[Tensor]] = {}
    right: dict[int, list[Tensor]] = {}
    full: list[Tensor] = []
    method.to(device)
    with evaluation_mode(method):
        for batch in batches.epoch(0):
            batch = batch.to(device)
            scores = dict(method.layer_scores(batch.x))
            full.append(hits(method.combine_scores(scores), batch.y).cpu())
            for layer in sorted(each for each in scores if each < top):
                sure, best = early_exit.confidence(layer, scores[layer])
                confidence.setdefault(layer, []).append(sure.cpu())
                right.setdefault(layer, []).append((best == batch.y).cpu())
    if not confidence:
        raise no_exits(method)
    return Answers(list(confidence), _columns(confidence), _columns(right), torch.cat(full))


@dataclass(frozen=True)
class ExitEvaluation:
    """What early exit does on one split."""

    split: str
    samples: int
    accuracy: float
    """The accuracy with early exit."""
    full_accuracy: float
    """The accuracy of the full network."""
    lost: int
    """How many samples the full network predicts correctly and early exit wrongly."""
    gained: int
    """How many samples early exit predicts correctly and the full network wrongly."""
    shares: dict[int, float]
    """The share of samples that each layer predicts; the last layer stands for the full network."""

    def to_json(self) -> dict[str, Any]:
        """The result as a dictionary of numbers."""
        return {**asdict(self), "shares": {str(layer): share for layer, share in self.shares.items()}}


def evaluate_exit(
    method: Method,
    data: DataSet,
    early_exit: EarlyExit | float = True,
    split: Split = "test",
    *,
    device: torch.device | str = "cpu",
    batch_size: int = 250,
) -> ExitEvaluation:
    """Compares early exit with the full network on a split. Moves the method to the device.

    Args:
        method: the method.
        data: the data set.
        early_exit: as in `Method.predict`.
        split: the split to evaluate on; "all" is all splits together.
        device: the device to compute on.
        batch_size: the number of samples in a batch.
    """
    method.check_data(data.in_shape, len(data.classes), data.name)
    device = torch.device(device)
    method.to(device)
    policy = chosen_exit(method, early_exit) or EarlyExit({})
    examples = examples_of(data, split)
    full_right, right, layers = [], [], []
    for batch in Batches.in_order(examples, data.preprocessing, batch_size).epoch(0):
        batch = batch.to(device)
        classes, predicted_by = method.predict_early(batch.x, policy)
        full_right.append(method.predict(batch.x) == batch.y)
        right.append(classes == batch.y)
        layers.append(predicted_by)
    full, early = torch.cat(full_right), torch.cat(right)
    counts = torch.bincount(torch.cat(layers), minlength=max(method.read_out_layers) + 1)
    return ExitEvaluation(
        split=split,
        samples=len(examples),
        accuracy=float(early.double().mean()),
        full_accuracy=float(full.double().mean()),
        lost=int((full & ~early).sum()),
        gained=int((early & ~full).sum()),
        shares={layer: count / len(examples) for layer, count in enumerate(counts.tolist())},
    )


def _parts(validation: Examples) -> tuple[Examples, Examples]:
    """The samples that scales are fitted on, and those that thresholds are chosen on.

    The split is random and not stratified, so that the second part is a plain random sample.
    """
    order = permutation(len(validation), "early exit")
    count = math.ceil(SCALE_SHARE * len(validation))
    fitted, held_out = (part.sort().values for part in (order[:count], order[count:]))
    return validation.subset(fitted), validation.subset(held_out)


def _columns(parts: Mapping[int, Sequence[Tensor]]) -> Tensor:
    """One column [N] for each layer, from the parts of each: [N, L]."""
    return torch.stack([torch.cat(list(each)) for each in parts.values()], 1)


def _why_none(samples: int, allowed: int, epsilon: float, delta: float) -> str:
    text = f"Early exit is off: no threshold is known to lose at most {epsilon:.2%} of the samples"
    if allowed >= 0:
        return f"{text}; use a larger epsilon."
    needed = math.ceil(math.log(delta) / math.log1p(-epsilon) / (1 - SCALE_SHARE))
    return (
        f"{text}, because {samples} calibration samples are too few; use a validation split of at least "
        f"{needed} samples, or a larger epsilon."
    )
