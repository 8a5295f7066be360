"""Dendritic Localized Learning: separate feedback weights relay the output's error down the network."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff.errors import require
from hff.methods.families.relayed import RelayedMethod
from hff.methods.method import Form, MethodInfo, ParameterSet, Stage, register
from hff.modules.feedback import Feedback
from hff.networks import Network


@register
class DLL(RelayedMethod):
    """Each weight changes by its input times an error that separate feedback weights relay.

    A last row of C units is the output; otherwise one is added. The networks of the paper have tanh and no
    biases.

    Args:
        output: softmax output (the paper's CNN); linear output with squared error; or the latter with a
            softmax as activation of the last hidden layer (softmax_features, the paper's MLP).
        softmax_derivative: the derivative of that softmax, of the output or of the features: 1, as in the
            released code (one), or the true one (jacobian). At a softmax output, 1 gives the gradient of
            the cross-entropy, and the true one gives that of the squared error.
        feedback: whether feedback weights keep their initial values (fixed) or learn (learned).
        feedback_sign: learned feedback reduces the squared errors that it relays (descent) or increases them.
        feedback_scale: standard deviation of the feedback weights; none preserves the size of errors.
        feedback_learning_rate: factor of the learning rate for learned feedback.
        weight_scale: standard deviation of the initial forward weights; none is the network's initialization.
        label_smoothing: share of the target that is spread over all classes.
        error_clamp: limit at which the relayed errors of a sample are clipped.
        squash_input: whether to apply tanh to the input (the paper's MLP).
    """

    name = "dll"
    info = MethodInfo(
        title="DLL",
        paper="Lv, Xu, Lu et al. 2025, Dendritic Localized Learning: Toward Biologically Plausible Algorithm "
        "(arXiv 2501.09976)",
        gradient_reach="all",
        top_signal=True,
        signal="feedback",
        layer_local=False,
        autocast=False,
        form=Form({"activation": "tanh", "bias": False}),
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        output: Literal["softmax", "linear", "softmax_features"] = "softmax",
        softmax_derivative: Literal["one", "jacobian"] = "one",
        feedback: Literal["fixed", "learned"] = "fixed",
        feedback_sign: Literal["descent", "ascent"] = "descent",
        feedback_scale: float | None = None,
        feedback_learning_rate: float = 0.1,
        weight_scale: float | None = None,
        label_smoothing: float = 0.1,
        error_clamp: float = 50.0,
        squash_input: bool = False,
    ) -> None:
        super().__init__(network, classes, output)
        require(
            0 <= label_smoothing < 1,
            f"label_smoothing must be at least 0 and below 1, not {label_smoothing:g}.",
        )
        require(error_clamp > 0, f"error_clamp must be above 0, not {error_clamp:g}.")
        self.softmax_derivative = softmax_derivative
        self.feedback_sign = 1 if feedback_sign == "descent" else -1
        self.feedback_learning_rate = feedback_learning_rate
        self.label_smoothing = label_smoothing
        self.error_clamp = error_clamp
        self.squash_input = squash_input
        *hidden, last = (self.affine_block(layer) for layer in range(len(self.blocks)))
        if output == "softmax_features" and hidden:
            hidden[-1].activation = _softmax if softmax_derivative == "jacobian" else _softmax_with_slope_one
        if weight_scale is not None:
            for block in (*hidden, last):
                nn.init.normal_(block.affine.weight, std=weight_scale)
        self.feedback = nn.ModuleList(
            Feedback(block, scale=feedback_scale, learned=feedback == "learned")
            for block in (*hidden, last)[1:]
        )

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        learned = ParameterSet(list(self.feedback.parameters()), self.feedback_learning_rate)
        groups = super().parameter_groups(stage)
        groups["network"].append(learned)
        return groups

    def stem(self, x: Tensor) -> Tensor:
        return torch.tanh(x) if self.squash_input else x

    def loss(self, scores: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, or half the squared distance to the target: scores [B, C], labels [B] -> []."""
        target = F.one_hot(y, self.classes) * (1 - self.label_smoothing) + self.label_smoothing / self.classes
        if self.output == "softmax":
            if self.softmax_derivative == "one":
                return F.cross_entropy(scores, target)
            scores = torch.softmax(scores, 1)
        return 0.5 * (scores - target).square().sum(1).mean()

    def relay(self, layer: int, error: Tensor) -> Tensor:
        """Relays an error through the affine map of a block and adds the gradient of learned feedback.

        The error is that of the mean loss, so a sample's own error is B times as large.
        """
        below = super().relay(layer, error)
        samples = len(error)
        if below.requires_grad:
            # The gradient of half the mean over samples of the squared relayed error.
            below.backward(self.feedback_sign * samples * below.detach())
        limit = self.error_clamp / samples
        return below.detach().clamp(-limit, limit)


def _softmax(f: Tensor) -> Tensor:
    """Softmax over all units of a sample [B, ...]."""
    return torch.softmax(f.flatten(1), 1).view_as(f)


def _softmax_with_slope_one(f: Tensor) -> Tensor:
    """The same values, with the derivative 1 of the released code."""
    return _softmax(f.detach()) + (f - f.detach())
