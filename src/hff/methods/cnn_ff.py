"""Forward-Forward for convolutions: the label is spread over the whole image."""

from dataclasses import replace
from typing import Any, Literal

from hff.errors import UserError
from hff.methods.families.threshold import SideHeadMethod
from hff.methods.method import Form, MethodInfo, Stage, register
from hff.modules.labels import LabelEncoding, Morphology, PlaneWaves
from hff.networks import Network


@register
class ConvolutionalForwardForward(SideHeadMethod):
    """Forward-Forward on images with a plane wave of their label, or transformed according to their label.

    Args:
        label: blend the image with a plane wave of the class (waves), or transform the image by an operator
            of the class (morphology).
        label_intensity: share of the wave in the blend (K in the paper); not used by morphology.
        first_layer_learns: whether the first layer learns or keeps its initial weights.
    """

    name = "cnn_ff"
    info = MethodInfo(
        title="Convolutional Forward-Forward",
        paper="Scodellaro, Kulkarni, Alves and Schröter 2025, Training Convolutional Neural Networks with "
        "the Forward-Forward Algorithm (arXiv 2312.14924)",
        passes="C",
        needs_negatives=True,
        supports=frozenset({"conv"}),
        form=Form({"channels": (16, 32, 64), "kernel": 7, "norm": "layer"}),
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        label: Literal["waves", "morphology"] = "waves",
        label_intensity: float = 0.35,
        threshold: float = 1.0,
        sharpness: float = 5.0,
        head_learning_rate: float = 1.0,
        first_layer_learns: bool = True,
        **options: Any,
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
            threshold=threshold,
            sharpness=sharpness,
            head_learning_rate=head_learning_rate,
            **options,
        )
        self.lowest = 0 if first_layer_learns else 1
        if self.lowest == len(self.blocks):
            raise UserError("first_layer_learns false needs a network with at least 2 layers.")
        self.blocks[: self.lowest].requires_grad_(False)

    def stages(self, epochs: int) -> list[Stage]:
        stages = [
            replace(stage, blocks=tuple(layer for layer in stage.blocks if layer >= self.lowest))
            for stage in super().stages(epochs)
        ]
        return [stage for stage in stages if stage.blocks]
