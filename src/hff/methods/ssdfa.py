"""Single-sparse Direct Feedback Alignment: every unit gets the error of one class."""

from functools import partial
from typing import Any

from hff.methods.dfa import DFA
from hff.methods.method import Form, MethodInfo, register
from hff.modules.feedback import SparseFeedback
from hff.networks import Network


@register
class SSDFA(DFA):
    """Direct feedback in which each unit has one feedback weight, from a random class.

    A last row of C units is the output, which gets its true gradient; otherwise one is added.

    Args:
        listens_to: number of different classes whose error a unit gets.
        output: softmax output with cross-entropy (as in the paper), or sigmoids with binary cross-entropy.
    """

    name = "ssdfa"
    info = MethodInfo(
        title="Sparse Direct Feedback Alignment",
        paper="Crafton, Parihar, Gebhardt and Raychowdhury 2019, Direct Feedback Alignment With Sparse "
        "Connections for Local Learning (arXiv 1903.02083)",
        top_signal=True,
        signal="feedback",
        layer_local=False,
        autocast=False,
        learning_rate=3e-3,
        form=Form({"activation": "tanh"}),
    )

    def __init__(self, network: Network, classes: int, *, listens_to: int = 1, **options: Any) -> None:
        super().__init__(network, classes, partial(SparseFeedback, listens_to=listens_to), **options)
