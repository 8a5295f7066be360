"""Feedback Alignment: backpropagation with fixed random feedback weights."""

from typing import Literal

from torch import Tensor, nn

from hff.methods.families.relayed import RelayedMethod
from hff.methods.families.top_error import Output, Start
from hff.methods.method import Form, MethodInfo, group_name, register
from hff.modules.feedback import Distribution, Feedback, Scale, angle
from hff.networks import Network


@register
class FA(RelayedMethod):
    """Fixed random weights send the error down, instead of the transposed forward weights.

    A last row of C units is the output; otherwise one is added.

    Args:
        feedback: fixed random weights (random), or the signs of the forward weights, all with the same size
            (sign), as a control with partial weight transport (sign symmetry).
        feedback_distribution: distribution of random feedback; signs means two values, one of each sign.
        feedback_scale: standard deviation of the feedback: a number; weights, that of the initial forward
            weights; xavier, Glorot's; none preserves the size of errors.
        output: softmax output with cross-entropy, or sigmoids with binary cross-entropy.
        start: initial forward weights: those of the network, zero, or zero above the first layer.
        bias_start: initial bias of hidden layers whose weights start at zero.
    """

    name = "fa"
    info = MethodInfo(
        title="Feedback Alignment",
        paper="Lillicrap, Cownden, Tweed and Akerman 2016, Random synaptic feedback weights support error "
        "backpropagation for deep learning (arXiv 1411.0247)",
        gradient_reach="all",
        top_signal=True,
        signal="feedback",
        layer_local=False,
        autocast=False,
        form=Form({"activation": "tanh"}),
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        feedback: Literal["random", "sign"] = "random",
        feedback_distribution: Distribution = "normal",
        feedback_scale: Scale = None,
        output: Output = "softmax",
        start: Start = "network",
        bias_start: float = 0.0,
    ) -> None:
        super().__init__(network, classes, output)
        self.follows_signs = feedback == "sign"
        layers = range(len(self.blocks))
        self.begin(start, bias_start, layers)
        self.feedback = nn.ModuleList(
            Feedback(self.affine_block(layer), scale=feedback_scale, distribution=feedback_distribution)
            for layer in layers[1:]
        )

    def relay(self, layer: int, error: Tensor) -> Tensor:
        if self.follows_signs:
            self._feedback(layer).follow_signs(self.affine_block(layer).affine.weight)
        return super().relay(layer, error)

    def diagnostics(self) -> dict[str, float]:
        """For each block above the first: the angle between W and feedback B in degrees, and |B| / |W|."""
        found = {}
        for layer in range(1, len(self.blocks)):
            forward, back = self.affine_block(layer).affine.weight.detach(), self._feedback(layer).weight
            found[f"{group_name(layer)}_angle"] = angle(forward, back)
            found[f"{group_name(layer)}_norm_ratio"] = float(back.norm() / forward.norm().clamp_min(1e-12))
        return found

    def _feedback(self, layer: int) -> Feedback:
        feedback = self.feedback[layer - 1]
        assert isinstance(feedback, Feedback)
        return feedback
