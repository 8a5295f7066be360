"""Predictive coding: activities minimize local prediction errors before the weights learn."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.families.top_error import needs_derivatives
from hff.methods.method import Form, Method, MethodInfo, ParameterSet, Stage, register
from hff.networks import Block, Network


@dataclass
class Prediction:
    """The prediction of a block from the activity below it, where its graph ends."""

    below: Tensor
    """[B, *in_shape]"""
    out: Tensor
    """[B, *out_shape]"""

    def down(self, error: Tensor) -> Tensor:
        """Sends an error of the prediction [B, *out_shape] down to the activity below [B, *in_shape]."""
        (below,) = torch.autograd.grad(self.out, self.below, error, retain_graph=True)
        return below


@register
class PredictiveCoding(Method):
    """Every block predicts the next activity; with input and label fixed, activities reduce the errors.

    A last row of C units is the output; otherwise one is added. To classify, one forward pass is enough.

    Args:
        variant: predictions follow the activities (standard); an optimizer step follows every inference step
            (incremental); or predictions and their derivatives stay those of the forward pass, which
            approximates backpropagation (fixed_prediction).
        inference_steps: inference steps per batch; an error moves down by one block in each step.
        inference_rate: step size of the activities.
        inference_momentum: momentum of the activities.
        output: squared error of the output, or cross-entropy of its softmax.
        nudge: the target is this share of the way from the output to the label: 1 is the label itself; below
            0 the target is away from it, and the sign of the gradient is reversed.
        centered: whether to use both signs of the nudge and average the gradients.
    """

    name = "predictive_coding"
    info = MethodInfo(
        title="Predictive coding",
        paper="Whittington and Bogacz 2017, An Approximation of the Error Backpropagation Algorithm in a "
        "Predictive Coding Network with Local Hebbian Synaptic Plasticity; Millidge, Tschantz and Buckley "
        "2020 (arXiv 2006.04182); Pinchetti et al. 2024 (arXiv 2407.01163)",
        gradient_reach="all",
        top_signal=True,
        signal="feedback",
        layer_local=False,
        autocast=False,
        learning_rate=3e-3,
        form=Form({"activation": "gelu"}),
    )
    energies: Tensor

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        variant: Literal["standard", "incremental", "fixed_prediction"] = "standard",
        inference_steps: int = 8,
        inference_rate: float = 0.1,
        inference_momentum: float = 0.0,
        output: Literal["squared", "cross_entropy"] = "squared",
        nudge: float = 1.0,
        centered: bool = False,
    ) -> None:
        require(inference_steps >= 1, f"inference_steps must be at least 1, not {inference_steps}.")
        require(inference_rate > 0, f"inference_rate must be above 0, not {inference_rate:g}.")
        require(
            0 <= inference_momentum < 1,
            f"inference_momentum must be at least 0 and below 1, not {inference_momentum:g}.",
        )
        require(nudge != 0, "nudge must not be 0, because nothing would be learned; 1 is the label itself.")
        if centered and variant == "incremental":
            raise UserError(
                "centered compares both nudges at the same weights, but variant incremental changes them "
                "within a batch; use standard."
            )
        super().__init__(network.with_output(classes), classes)
        self.variant = variant
        self.inference_steps = inference_steps
        self.inference_rate = inference_rate
        self.inference_momentum = inference_momentum
        self.output = output
        self.nudges = (nudge, -nudge) if centered else (nudge,)
        self.register_buffer("energies", torch.zeros(len(self.blocks)))

    @classmethod
    def unsupported_reason(cls, network: Network, classes: int) -> str | None:
        if any(row.norm in ("batch", "batch_plain") or row.dropout for row in network.affine_rows):
            return (
                f"{cls.info.title} does not support batch norm and dropout, but network {network.name!r} has "
                f"them; choose another network."
            )
        return super().unsupported_reason(network, classes) or needs_derivatives(cls, network)

    @property
    def steps_within_batch(self) -> bool:
        return self.variant == "incremental"

    def diagnostics(self) -> dict[str, float]:
        """The energy of each layer after inference, mean over the samples of the last batch."""
        return {f"energy_{layer}": energy for layer, energy in enumerate(self.energies.tolist())}

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        return {"network": [ParameterSet(list(self.parameters()))]}

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        start = self.start(batch.x)
        loss = self.energy(start[-1].out, batch.y)
        for nudge in self.nudges:
            for predictions, errors in self.infer(batch, start, nudge):
                self._learn(predictions, errors, nudge)
                if self.variant == "incremental":
                    yield "network", loss
        if self.variant != "incremental":
            yield "network", loss

    def infer(
        self, batch: Batch, start: list[Prediction], nudge: float
    ) -> Iterator[tuple[list[Prediction], list[Tensor]]]:
        """Runs inference; yields predictions and errors of all layers whenever the weights learn.

        Args:
            batch: inputs [B, *in_shape] and labels [B].
            start: the forward pass, which gives the initial activities.
            nudge: share of the way from the output to the label.
        """
        target = self.clamped(start[-1].out, batch.y, nudge)
        activities = [each.out.detach() for each in start[:-1]]
        momenta = [torch.zeros_like(each) for each in activities]
        predictions = start
        for _ in range(self.inference_steps):
            errors = self.errors(predictions, activities, target)
            for layer, momentum in enumerate(momenta):
                # dE/dh_l = e_l - J^T e_{l+1}; all layers step from the same errors.
                gradient = errors[layer] - predictions[layer + 1].down(errors[layer + 1])
                momentum.mul_(self.inference_momentum).add_(gradient)
            activities = [
                activity - self.inference_rate * momentum
                for activity, momentum in zip(activities, momenta, strict=True)
            ]
            if self.variant == "standard":
                # Input and weights do not change, so neither does the prediction of the first block.
                predictions = [start[0], *self.predictions(activities, 1)]
            elif self.variant == "incremental":
                predictions = self.predictions([batch.x, *activities])
                yield predictions, self.errors(predictions, activities, target)
                # The weights have changed.
                predictions = self.predictions([batch.x, *activities])
        if self.variant != "incremental":
            yield predictions, self.errors(predictions, activities, target)

    def start(self, x: Tensor) -> list[Prediction]:
        """The forward pass from inputs [B, *in_shape], with a separate graph for each block."""
        found: list[Prediction] = []
        for layer in range(len(self.blocks)):
            found += self.predictions([found[-1].out if found else x], layer)
        return found

    def predictions(self, below: list[Tensor], first: int = 0) -> list[Prediction]:
        """The predictions of the blocks from `first` on, each from the activity [B, *in_shape] below it."""
        found = []
        for layer, activity in enumerate(below, first):
            with torch.enable_grad():
                leaf = activity.detach().requires_grad_(layer > 0)
                found.append(Prediction(leaf, self.blocks[layer](leaf)))
        return found

    def errors(self, predictions: list[Prediction], activities: list[Tensor], target: Tensor) -> list[Tensor]:
        """Activity minus prediction for each layer [B, *out_shape]; for the output, target minus answer.

        For squared error and cross-entropy, this is the negative gradient of the layer's energy.
        """
        *hidden, output = (each.out.detach() for each in predictions)
        return [*(h - mu for h, mu in zip(activities, hidden, strict=True)), target - self.answer(output)]

    def _learn(self, predictions: list[Prediction], errors: list[Tensor], nudge: float) -> None:
        """Adds the gradient of the mean energy to each block's weights, from its own error only."""
        scale = -1 / (len(errors[0]) * nudge * len(self.nudges))
        for block, prediction, error in zip(self.blocks, predictions, errors, strict=True):
            assert isinstance(block, Block)
            prediction.out.backward(scale * error, inputs=list(block.parameters()), retain_graph=True)
        self.energies.copy_(torch.stack([0.5 * error.square().sum() / len(error) for error in errors]))

    def answer(self, output: Tensor) -> Tensor:
        """The output or its softmax, which is compared with the label [B, C]."""
        return torch.softmax(output, 1) if self.output == "cross_entropy" else output

    def clamped(self, output: Tensor, y: Tensor, nudge: float) -> Tensor:
        """The target of the output [B, C]: this share of the way from the answer to the label [B]."""
        answer = self.answer(output.detach())
        return answer + nudge * (F.one_hot(y, self.classes).to(answer.dtype) - answer)

    def energy(self, output: Tensor, y: Tensor) -> Tensor:
        """The mean loss of the forward pass []: the energy of the output with the label as target."""
        output = output.detach()
        if self.output == "cross_entropy":
            return F.cross_entropy(output, y)
        return 0.5 * (output - F.one_hot(y, self.classes)).square().sum(1).mean()
