"""Layer Collaboration: Forward-Forward whose layers count on the goodness of the others."""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods.families.threshold import Goodness, ThresholdMethod
from hff.methods.method import (
    GreedyEpochs,
    LayerOrder,
    Method,
    MethodInfo,
    ReadOut,
    Stage,
    group_name,
    register,
)
from hff.modules.labels import one_hot_encoding
from hff.networks import Network


@register
class LayerCollab(ThresholdMethod):
    """Forward-Forward on a layer's goodness plus that of other layers, which counts as a constant.

    Args:
        collaboration: count on all other layers (full), or on the earlier ones only (causal).
        goodness: the sum of squares, or their mean, which alone makes layers of unequal widths comparable.
        threshold: goodness per unit that parts true from wrong labels; it is added up over the layers whose
            goodness is, so it is L times as large for the total of L layers.
        sharpness: factor of goodness and threshold in the logistic loss.
        label_intensity: the value that marks the label in the input.
        layer_order: update all layers with each batch (joint), or one layer after the other (greedy), which only
            causal collaboration allows.
        greedy_epochs: whether each layer gets all epochs when greedy, or the layers share them.
        read_out: whose goodness decides; the mean of all layers decides like their sum.
    """

    name = "layer_collab"
    info = MethodInfo(
        title="Layer Collaboration",
        paper="Lorberbom, Gat, Adi, Schwing and Hazan 2024, Layer Collaboration in the Forward-Forward "
        "Algorithm (arXiv 2305.12393)",
        passes="C",
        needs_negatives=True,
        gradient_reach=0,
        supports=frozenset({"linear"}),
        layer_local=False,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        collaboration: Literal["full", "causal"] = "full",
        goodness: Goodness = "mean",
        threshold: float = 0.5,
        sharpness: float = 20.0,
        label_intensity: float = 10.0,
        layer_order: LayerOrder = "joint",
        greedy_epochs: GreedyEpochs = "each",
        read_out: ReadOut = "mean",
    ) -> None:
        if layer_order == "greedy" and collaboration == "full":
            raise UserError(
                "A layer that is trained before the next ones cannot count on them: "
                "set collaboration causal, or layer_order joint."
            )
        super().__init__(
            network,
            classes,
            one_hot_encoding(network.in_shape, classes, label_intensity),
            threshold=threshold,
            inference="goodness",
            head_learning_rate=1.0,
            goodness=goodness,
            sharpness=sharpness,
            read_out=read_out,
        )
        self.causal = collaboration == "causal"
        self.layer_order = layer_order
        self.greedy_epochs = greedy_epochs

    # A layer by itself does not know the goodness of the others, so the pairs' own step would be plain FF.
    layer_step = Method.layer_step

    def units(self, layer: int) -> int:
        return sum(super(LayerCollab, self).units(each) for each in self._counted(layer))

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        """One pass gives the goodness of all layers before any of them steps; each graph is of one block."""
        h, _ = self.training_inputs(batch)
        goodness = []
        for layer in range(max(stage.blocks) + 1):
            with torch.set_grad_enabled(layer in stage.blocks):
                activity = self.activity(layer, h)
                goodness.append(self.goodness(layer, activity))
            h = self.next_input(layer, h, activity.detach())
        for layer in stage.blocks:
            counted = [goodness[i] if i == layer else goodness[i].detach() for i in self._counted(layer)]
            loss = self.pair_loss(layer, *torch.stack(counted).sum(0).chunk(2))
            loss.backward()
            yield group_name(layer), loss.detach()

    def _counted(self, layer: int) -> Sequence[int]:
        """The layers whose goodness is in the loss of a layer, itself among them."""
        return range(layer + 1 if self.causal else len(self.blocks))

    @property
    def _upper(self) -> Sequence[int]:
        """The layers that predict: all, for it is their sum that is trained."""
        return range(len(self.blocks))
