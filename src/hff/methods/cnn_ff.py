"""Forward-Forward for convolutions: the label is spread over the image, where every position can read it."""

from typing import Literal

from hff.errors import UserError
from hff.methods.families.threshold import Goodness, Inference, ThresholdMethod
from hff.methods.method import MethodInfo, ReadOut, Stage, register
from hff.modules.labels import LabelEncoding, Morphology, PlaneWaves
from hff.networks import Network


@register
class ConvolutionalForwardForward(ThresholdMethod):
    """Forward-Forward on images that have a wave of their class blended in, or change with their label.

    Args:
        label: blend a plane wave for each class into the image (waves), or transform the image itself by an
            operator for each class (morphology).
        label_intensity: share of the wave in the blend, the paper's K; morphology has none.
        goodness: sum or mean of the squares of a layer's units.
        threshold: goodness per unit that parts true from wrong labels.
        sharpness: factor of goodness and threshold in the logistic loss.
        first_layer_learns: whether the first layer learns too, or stays as it was drawn.
        inference: try every label and add up the goodness of the layers, or ask the side head in one pass.
        head_learning_rate: factor of the learning rate for the side head.
        read_out: whose goodness decides; the mean leaves out the first layer.
    """

    name = "cnn_ff"
    info = MethodInfo(
        title="Convolutional Forward-Forward",
        paper="Scodellaro, Kulkarni, Alves and Schröter 2025, Training Convolutional Neural Networks with "
        "the Forward-Forward Algorithm (arXiv 2312.14924)",
        passes="C",
        needs_negatives=True,
        gradient_reach=0,
        supports=frozenset({"conv"}),
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        label: Literal["waves", "morphology"] = "waves",
        label_intensity: float = 0.35,
        goodness: Goodness = "mean",
        threshold: float = 1.0,
        sharpness: float = 5.0,
        first_layer_learns: bool = True,
        inference: Inference = "goodness",
        head_learning_rate: float = 1.0,
        read_out: ReadOut = "mean",
    ) -> None:
        encoding: LabelEncoding
        if label == "waves":
            encoding = PlaneWaves(network.in_shape, classes, label_intensity)
        else:
            encoding = Morphology(network.in_shape, classes)
        super().__init__(
            network,
            classes,
            encoding,
            goodness=goodness,
            threshold=threshold,
            sharpness=sharpness,
            inference=inference,
            head_learning_rate=head_learning_rate,
            read_out=read_out,
        )
        self.lowest = 0 if first_layer_learns else 1
        if self.lowest == len(self.blocks):
            raise UserError("A network of one layer learns nothing if the first layer does not learn.")

    def stages(self, epochs: int) -> list[Stage]:
        return [Stage("joint", tuple(range(self.lowest, len(self.blocks))), epochs)]
