"""The Trifecta: a loss without threshold, batch norm between layers, windows of two layers that overlap."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from hff.batch import Batch
from hff.errors import require
from hff.methods.families.pairs import GapMethod
from hff.methods.method import MethodInfo, ParameterSet, Stage, group_name, register
from hff.modules.labels import Appended, LabelChannel, LabelEncoding
from hff.networks import Network
from hff.randomness import Key


@register
class Trifecta(GapMethod):
    """Each layer learns for its own goodness and for that of the next one, on every second batch in turn.

    The length of what a layer hands on is kept; the network's table is to have batch norm on the input of
    each layer. A label is a learned picture, as one more channel of the image.

    Args:
        sharpness: factor of the goodness gap inside the softplus, the paper's alpha.
        overlap: train windows of two layers, which shift by one from batch to batch, or every layer alone.
        ensemble: how many of the last layers are averaged to predict.
    """

    name = "tff"
    info = MethodInfo(
        title="The Trifecta",
        paper="Dooms, Tsang and Oramas 2023, The Trifecta: Three simple techniques for training deeper "
        "Forward-Forward networks (arXiv 2311.18130)",
        passes="C",
        needs_negatives=True,
        gradient_reach=1,
        top_signal=True,
        layer_local=False,
    )
    hides_length = False

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        sharpness: float = 4.0,
        overlap: bool = True,
        ensemble: int = 1,
    ) -> None:
        encoding: LabelEncoding
        if len(network.in_shape) == 3:
            encoding = LabelChannel(network.in_shape, classes)
        else:
            encoding = Appended(network.in_shape, classes, intensity=1)
        super().__init__(network, classes, encoding, sharpness=sharpness, read_out="last")
        depth = len(self.blocks)
        require(
            1 <= ensemble <= depth, f"ensemble must be 1 to {depth}, the number of layers, not {ensemble}."
        )
        # A single layer has no neighbour: with windows it would only sit out every second batch.
        self.overlap = overlap and depth > 1
        self.ensemble = ensemble

    @property
    def read_out_layers(self) -> Sequence[int]:
        depth = len(self.blocks)
        return range(depth - self.ensemble, depth)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        """Each group holds a window, so that a layer has two optimisers with moments of their own."""
        groups = {}
        for layer in stage.blocks:
            lower = self.blocks[layer - 1] if layer else self.encoding
            learned = [*lower.parameters(), *self.blocks[layer].parameters()]
            groups[group_name(layer)] = [ParameterSet(learned)]
        return groups

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        h = self.training_inputs(batch)
        ends = self.window_ends(batch.key)
        if 0 not in ends:
            # The labels belong to the first layer's optimiser: what they got here would never be stepped.
            h = h.detach()
        for layer in range(max(ends) + 1):
            features = self.features(layer, h)
            if layer in ends:
                loss = self.loss(layer, features, batch)
                loss.backward()
                yield group_name(layer), loss.detach()
                features = features.detach()
            h = self.next_input(layer, features, h)

    def window_ends(self, key: Key) -> Sequence[int]:
        """The layers that have a loss on the batch of this key (seed, stage, epoch, step).

        On even batches they close the windows {0, 1}, {2, 3}, ..., on odd ones {0}, {1, 2}, {3, 4}, ...
        """
        depth = len(self.blocks)
        if not self.overlap:
            return range(depth)
        epoch, step = key[-2:]
        # With the epoch in it, an even number of batches does not give each batch's place a fixed parity.
        return range(1 - (int(epoch) + int(step)) % 2, depth, 2)
