"""Direct Feedback Alignment: fixed random weights send the output's error directly to every block."""

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from hff.batch import Batch
from hff.methods.families.top_error import Output, Start, TopErrorMethod
from hff.methods.method import Form, MethodInfo, Stage, group_name, register
from hff.modules.feedback import DenseFeedback, DirectFeedback, angle
from hff.networks import Network

Spread = Literal["dense", "replicated"]
Frozen = Literal["none", "conv"]


@register
class DFA(TopErrorMethod):
    """Each hidden block learns from a random projection of the output's error, not from the block above.

    A last row of C units is the output, which gets its true gradient; otherwise one is added.

    Args:
        output: softmax output with cross-entropy, or sigmoids with binary cross-entropy (as in the paper).
        start: initial forward weights: those of the network, zero (as in the paper), or zero above the first
            layer.
        bias_start: initial bias of hidden layers whose weights start at zero; must be above 0 for relu.
        conv_feedback: every unit of a map has its own feedback weights (dense, as published), or all
            positions of a channel get the same signal (replicated).
        feedback_scale: factor for the range of the random feedback weights.
        frozen: blocks that keep their initial weights: none, or all convolutions, as a control that shows how
            much the convolutions learn.
    """

    name = "dfa"
    info = MethodInfo(
        title="Direct Feedback Alignment",
        paper="Nøkland 2016, Direct Feedback Alignment Provides Learning in Deep Neural Networks "
        "(arXiv 1609.01596)",
        top_signal=True,
        signal="feedback",
        layer_local=False,
        autocast=False,
        learning_rate=3e-3,
        form=Form({"activation": "tanh"}),
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        make_feedback: Callable[..., DirectFeedback] = DenseFeedback,
        *,
        output: Output = "softmax",
        start: Start = "network",
        bias_start: float = 0.0,
        conv_feedback: Spread = "dense",
        feedback_scale: float = 1.0,
        frozen: Frozen = "none",
    ) -> None:
        """make_feedback: creates the feedback of a block, for rules that differ only in that."""
        super().__init__(network, classes, output)
        depth = len(self.blocks)
        self.learning = tuple(layer for layer in range(depth) if self.block(layer).row.kind != frozen)
        for layer in set(range(depth)) - set(self.learning):
            self.blocks[layer].requires_grad_(False)
        self.begin(start, bias_start, self.learning)
        replicated = conv_feedback == "replicated"
        self.feedback = nn.ModuleDict(
            {
                group_name(layer): make_feedback(
                    classes, self.block(layer).out_shape, scale=feedback_scale, replicated=replicated
                )
                for layer in self.learning
                if layer < depth - 1
            }
        )

    def stages(self, epochs: int) -> list[Stage]:
        return [Stage("joint", self.learning, epochs)]

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        h = self.training_inputs(batch)
        activities: dict[int, Tensor] = {}
        for layer in range(batch.depth, len(self.blocks)):
            with torch.set_grad_enabled(layer in stage.blocks):
                activities[layer] = self.blocks[layer](h)
            # No true gradient flows from one block to the next.
            h = activities[layer].detach()
        loss, error = self.top_error(h, batch.y)
        for layer in stage.blocks:
            activities.pop(layer).backward(self.signal(layer, error))
        yield "network", loss

    def signal(self, layer: int, error: Tensor) -> Tensor:
        """The signal at the output of a block [B, *out_shape], from the error of the output [B, C]."""
        if layer == len(self.blocks) - 1:
            return error
        signal: Tensor = self.feedback[group_name(layer)](error)
        return signal

    def diagnostics(self) -> dict[str, float]:
        """The angle in degrees between a block's feedback and the product of the forward weights above it.

        With linear activations, that product gives the true gradient. Blocks below a convolution are omitted.
        """
        found = {}
        product: Tensor | None = None
        for layer in reversed(range(len(self.blocks) - 1)):
            above = self.affine_block(layer + 1)
            if above.row.kind != "linear":
                break
            weight = above.affine.weight.detach()
            product = weight if product is None else product @ weight
            if group_name(layer) in self.feedback:
                feedback = self.feedback[group_name(layer)]
                assert isinstance(feedback, DirectFeedback)
                found[f"{group_name(layer)}_angle"] = angle(feedback.matrix(), product)
        return found
