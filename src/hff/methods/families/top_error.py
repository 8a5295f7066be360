"""Shared by rules that send the error of one loss at the output to the blocks."""

from collections.abc import Iterable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff import functional
from hff.errors import UserError
from hff.methods.method import Method, ParameterSet, Stage
from hff.networks import AffineBlock, Network

Output = Literal["softmax", "sigmoid"]
Start = Literal["network", "zero", "zero_above"]


class TopErrorMethod(Method):
    """The last block gives the scores: a last row of C units, which is added if there is none."""

    def __init__(self, network: Network, classes: int, output: str = "softmax") -> None:
        super().__init__(network.with_output(classes), classes)
        self.output = output

    @classmethod
    def unsupported_reason(cls, network: Network, classes: int) -> str | None:
        return super().unsupported_reason(network, classes) or needs_derivatives(cls, network)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        learned = [p for layer in stage.blocks for p in self.blocks[layer].parameters()]
        return {"network": [ParameterSet(learned)]}

    def loss(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss at the output: scores [B, C], labels [B] -> [].

        Cross-entropy of a softmax, or the sum of the binary cross-entropies of C sigmoids.
        """
        if self.output == "softmax":
            return functional.cross_entropy(scores, y)
        target = F.one_hot(y, self.classes).to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, target, reduction="sum") / len(y)

    def top_error(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss [] and its gradient with respect to the scores [B, C]."""
        scores = scores.detach().requires_grad_()
        loss = self.loss(scores, y)
        (error,) = torch.autograd.grad(loss, scores)
        return loss.detach(), error

    def begin(self, start: Start, bias: float, layers: Iterable[int]) -> None:
        """Initializes the forward weights of these layers.

        bias: initial bias of hidden layers whose weights start at zero; the output's bias starts at zero.
        """
        for layer in layers:
            if start == "network" or (start == "zero_above" and layer == 0):
                continue
            block = self.affine_block(layer)
            nn.init.zeros_(block.affine.weight)
            hidden = layer < len(self.blocks) - 1
            if block.affine.bias is not None:
                nn.init.constant_(block.affine.bias, bias if hidden else 0.0)
            if hidden and _is_dead(block):
                raise UserError(
                    f"A {block.row.activation} layer whose weights start at zero has no gradient; use tanh "
                    f"or set bias_start to 0.1 in a network with biases and no norm before the activation."
                )


def needs_derivatives(method: type[Method], network: Network) -> str | None:
    """Why a rule that needs derivatives of activations cannot train the network; None if it can."""
    flat = network.activations_without_gradient
    if not flat:
        return None
    return f"{method.info.title} needs activations with a derivative; use another one than {flat.pop()!r}."


def _is_dead(block: AffineBlock) -> bool:
    """Whether the gradient of the activation is zero when all weights of the block are zero."""
    normed = block.row.norm != "none" and block.row.norm_at == "preactivation"
    bias = None if normed else block.affine.bias
    at = torch.zeros(1) if bias is None else bias.detach()[:1].clone()
    (slope,) = torch.autograd.grad(block.activate(at.requires_grad_()).sum(), at)
    return float(slope) == 0
