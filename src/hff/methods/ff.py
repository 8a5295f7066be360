"""Forward-Forward: every layer is a detector of whether image and label belong together."""

from typing import Literal

from torch import Tensor

from hff.batch import Batch
from hff.methods.families.threshold import Goodness, Inference, ThresholdMethod
from hff.methods.method import GreedyEpochs, LayerOrder, MethodInfo, ReadOut, register
from hff.modules.labels import hard_wrong_labels, one_hot_encoding
from hff.networks import Network


@register
class ForwardForward(ThresholdMethod):
    """The squared length of a layer's activity is to exceed a threshold for true labels only.

    Args:
        negatives: draw wrong labels uniformly, or the likelier the more the side head believes them (hard).
        inference: try every label and add up the goodness of the layers, or ask the side head in one pass.
        goodness: the sum of squares, or their mean.
        threshold: goodness per unit that parts true from wrong labels.
        sharpness: factor of goodness and threshold in the logistic loss.
        label_intensity: the value that marks the label in the input.
        head_learning_rate: factor of the learning rate for the side head.
        layer_order: update all layers with each batch (joint), or one layer after the other (greedy).
        greedy_epochs: whether each layer gets all epochs when greedy, or the layers share them.
        read_out: whose goodness decides; the mean leaves out the first layer, as Hinton does.
    """

    name = "ff"
    info = MethodInfo(
        title="Forward-Forward",
        paper="Hinton 2022, The Forward-Forward Algorithm: Some Preliminary Investigations "
        "(arXiv 2212.13345)",
        passes="C",
        needs_negatives=True,
        gradient_reach=0,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        negatives: Literal["uniform", "hard"] = "uniform",
        inference: Inference = "goodness",
        goodness: Goodness = "mean",
        threshold: float = 0.5,
        sharpness: float = 20.0,
        label_intensity: float = 10.0,
        head_learning_rate: float = 10.0,
        layer_order: LayerOrder = "joint",
        greedy_epochs: GreedyEpochs = "each",
        read_out: ReadOut = "mean",
    ) -> None:
        encoding = one_hot_encoding(network.in_shape, classes, label_intensity)
        super().__init__(
            network,
            classes,
            encoding,
            goodness=goodness,
            threshold=threshold,
            sharpness=sharpness,
            inference=inference,
            head_learning_rate=head_learning_rate,
            needs_head=negatives == "hard",
            read_out=read_out,
        )
        self.hard = negatives == "hard"
        self.layer_order = layer_order
        self.greedy_epochs = greedy_epochs

    def wrong(self, batch: Batch, features: Tensor) -> Tensor:
        if not self.hard or self.head is None:
            return super().wrong(batch, features)
        return hard_wrong_labels(batch.y, self.head(features), batch.draw("negatives"))
