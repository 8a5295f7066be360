"""What rules share in which one loss at the top gives the error, and the rule takes it to the blocks."""

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
    """The last block gives the scores: a last row of C units, or one that is added."""

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
        """What the error at the top is the gradient of: scores [B, C], labels [B] -> [].

        Cross-entropy of a softmax, or the binary ones of C sigmoids, added up.
        """
        if self.output == "softmax":
            return functional.cross_entropy(scores, y)
        target = F.one_hot(y, self.classes).to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, target, reduction="sum") / len(y)

    def top_error(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss [] and the error at the scores [B, C]."""
        scores = scores.detach().requires_grad_()
        loss = self.loss(scores, y)
        (error,) = torch.autograd.grad(loss, scores)
        return loss.detach(), error

    def begin(self, start: Start, bias: float, layers: Iterable[int]) -> None:
        """Puts the forward weights of these layers where the rule starts.

        bias: where hidden layers whose weights start at zero have their biases; the output's start at zero.
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
                    f"No error passes a {block.row.activation} layer whose weights start at zero; set "
                    f"bias_start to 0.1 in a network that has biases and no norm between, or take tanh."
                )


def needs_derivatives(method: type[Method], network: Network) -> str | None:
    """Why a rule that differentiates activations cannot train the network; None if it can."""
    flat = network.activations_without_gradient
    if not flat:
        return None
    return f"{method.info.title} needs activations with a derivative; choose another one than {flat.pop()!r}."


def _is_dead(block: AffineBlock) -> bool:
    """Whether no error passes the activation where all weights of the block are zero."""
    normed = block.row.norm != "none" and block.row.norm_at == "preactivation"
    bias = None if normed else block.affine.bias
    at = torch.zeros(1) if bias is None else bias.detach()[:1].clone()
    (slope,) = torch.autograd.grad(block.activate(at.requires_grad_()).sum(), at)
    return float(slope) == 0
