"""Layer Collaboration: Forward-Forward in which the loss of a layer includes the goodness of others."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods.families.threshold import ThresholdMethod
from hff.methods.method import Method, MethodInfo, Stage, group_name, register
from hff.modules.labels import one_hot_encoding
from hff.networks import Network


@register
class LayerCollab(ThresholdMethod):
    """Forward-Forward on a layer's goodness plus that of other layers, which is detached.

    Args:
        collaboration: add the goodness of all other layers (full), or of the lower ones only (causal).
        goodness: the sum of squares, or their mean, which makes layers of different widths comparable.
        threshold: goodness per unit that separates true from wrong labels; for the total of L layers it is
            L times as large.
        label_intensity: the value that marks the label in the input.
        layer_order: update all layers with each batch (joint), or train one layer after the other (greedy),
            which requires collaboration causal.
    """

    name = "layer_collab"
    info = MethodInfo(
        title="Layer Collaboration",
        paper="Lorberbom, Gat, Adi, Schwing and Hazan 2024, Layer Collaboration in the Forward-Forward "
        "Algorithm (arXiv 2305.12393)",
        passes="C",
        needs_negatives=True,
        top_signal=True,
        signal="feedback",
        supports=frozenset({"linear"}),
        layer_local=False,
    )

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        collaboration: Literal["full", "causal"] = "full",
        label_intensity: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(
            network, classes, one_hot_encoding(network.in_shape, classes, label_intensity), **options
        )
        if self.layer_order == "greedy" and collaboration == "full":
            raise UserError(
                "With layer_order greedy, a layer cannot use the goodness of the layers above it; "
                "set collaboration to causal or layer_order to joint."
            )
        self.causal = collaboration == "causal"

    @property
    def top_signal(self) -> bool:
        return not self.causal

    # The inherited step of a single layer would leave out the goodness of the other layers.
    layer_step = Method.layer_step

    def units(self, layer: int) -> int:
        return sum(super(LayerCollab, self).units(each) for each in self._collaborators(layer))

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        """Computes the goodness of all layers before any layer is updated; each graph spans one block."""
        h = self.training_inputs(batch)
        goodness = []
        for layer in range(max(stage.blocks) + 1):
            with torch.set_grad_enabled(layer in stage.blocks):
                features = self.features(layer, h)
                goodness.append(self.goodness(layer, features))
            h = self.next_input(layer, features.detach(), h)
        for layer in stage.blocks:
            parts = [goodness[i] if i == layer else goodness[i].detach() for i in self._collaborators(layer)]
            loss = self.pair_loss(layer, *torch.stack(parts).sum(0).chunk(2))
            loss.backward()
            yield group_name(layer), loss.detach()

    def _collaborators(self, layer: int) -> Sequence[int]:
        """The layers whose goodness is in the loss of a layer, including itself."""
        return range(layer + 1 if self.causal else len(self.blocks))

    @property
    def upper_layers(self) -> Sequence[int]:
        """The layers that predict: all of them, because training uses their sum."""
        return range(len(self.blocks))
