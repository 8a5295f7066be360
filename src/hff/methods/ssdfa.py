"""Single-sparse Direct Feedback Alignment: every unit listens to the error of one class."""

from functools import partial

from hff.methods.dfa import DFA, Rest, Spread
from hff.methods.families.top_error import OutputKind, Start
from hff.methods.method import MethodInfo, register
from hff.modules.feedback import SparseFeedback
from hff.networks import Network


@register
class SSDFA(DFA):
    """Direct feedback in which each unit has one feedback weight, to a class drawn at random.

    A last row of C units is the output, which gets its true gradient; otherwise one is added.

    Args:
        listens_to: how many classes, all different, a unit has feedback weights to.
        head: softmax output with cross-entropy (the paper's), or sigmoids with binary cross-entropy.
        start: forward weights start as the network's do, at zero (the paper's), or at zero above the first
            layer.
        bias_start: where the biases of hidden layers start whose weights start at zero; above 0 for relu.
        conv_feedback: every unit of a map has feedback weights of its own (dense, as published), or all
            positions of a channel are told the same (replicated).
        feedback_scale: factor of the range that feedback weights are drawn from.
        rest: which blocks stay at their random start: none, or all convolutions, which is the control that
            tells what the convolutions learn.
    """

    name = "ssdfa"
    info = MethodInfo(
        title="Sparse Direct Feedback Alignment",
        paper="Crafton, Parihar, Gebhardt and Raychowdhury 2019, Direct Feedback Alignment With Sparse "
        "Connections for Local Learning (arXiv 1903.02083)",
        passes="1",
        needs_negatives=False,
        gradient_reach="all",
        layer_local=False,
        learning_rate=3e-3,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        listens_to: int = 1,
        head: OutputKind = "softmax",
        start: Start = "network",
        bias_start: float = 0.0,
        conv_feedback: Spread = "dense",
        feedback_scale: float = 1.0,
        rest: Rest = "none",
    ) -> None:
        super().__init__(
            network,
            classes,
            partial(SparseFeedback, listens_to=listens_to),
            head=head,
            start=start,
            bias_start=bias_start,
            conv_feedback=conv_feedback,
            feedback_scale=feedback_scale,
            rest=rest,
        )
