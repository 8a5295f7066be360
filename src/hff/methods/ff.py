"""Forward-Forward: every layer detects whether the label matches the image."""

from typing import Any, Literal

from torch import Tensor

from hff.batch import Batch
from hff.methods.families.threshold import SideHeadMethod
from hff.methods.method import MethodInfo, register
from hff.modules.labels import hard_wrong_labels, one_hot_encoding
from hff.networks import Network


@register
class ForwardForward(SideHeadMethod):
    """The squared length of a layer's activity should exceed a threshold for true labels only.

    Args:
        negatives: draw wrong labels uniformly, or by the class probabilities of the side head (hard).
        label_intensity: the value that marks the label in the input.
    """

    name = "ff"
    info = MethodInfo(
        title="Forward-Forward",
        paper="Hinton 2022, The Forward-Forward Algorithm: Some Preliminary Investigations "
        "(arXiv 2212.13345)",
        passes="C",
        needs_negatives=True,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        negatives: Literal["uniform", "hard"] = "uniform",
        label_intensity: float = 10.0,
        **options: Any,
    ) -> None:
        encoding = one_hot_encoding(network.in_shape, classes, label_intensity)
        super().__init__(network, classes, encoding, negatives == "hard", **options)
        self.hard = negatives == "hard"

    def wrong(self, batch: Batch, features: Tensor) -> Tensor:
        if not self.hard or self.head is None:
            return super().wrong(batch, features)
        return hard_wrong_labels(batch.y, self.head(features), batch.draw("negatives"))
