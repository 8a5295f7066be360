"""The Trifecta: a loss without threshold, batch norm between layers, overlapping windows of two layers."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from hff.batch import Batch
from hff.errors import require
from hff.methods.families.pairs import GapMethod
from hff.methods.method import Form, MethodInfo, ParameterSet, Stage, group_name, register
from hff.modules.labels import Appended, LabelChannel, LabelEncoding
from hff.networks import Network
from hff.randomness import Key


@register
class Trifecta(GapMethod):
    """Each layer learns by its own goodness and by that of the next layer, on alternating batches.

    The outputs of layers keep their length; the network should have batch norm at the input of each layer. A
    label is a learned image, added as another channel.

    Args:
        sharpness: factor of the goodness gap in the softplus (alpha in the paper).
        overlap: whether to train windows of two layers, which shift by one from batch to batch, or each layer
            alone.
        ensemble: number of last layers whose scores are averaged to predict.
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
        learning_rate=3e-3,
        form=Form({"norm": "batch", "norm_at": "input", "bias": False}),
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
        # With windows, a single layer would learn from every second batch only.
        self.overlap = overlap and depth > 1
        self.ensemble = ensemble

    @property
    def gradient_reach(self) -> int:
        return 1 if self.overlap else 0

    @property
    def top_signal(self) -> bool:
        return self.overlap

    @property
    def read_out_layers(self) -> Sequence[int]:
        depth = len(self.blocks)
        return range(depth - self.ensemble, depth)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        """One group for each window, so that a layer has two optimizers with separate moments."""
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
            # The labels belong to the first layer's optimizer, which does not step on this batch.
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
        """The layers that have a loss on the batch with this key (seed, stage, epoch, step).

        They are the ends of the windows {0, 1}, {2, 3}, ... on even batches and {0}, {1, 2}, ... on odd ones.
        """
        depth = len(self.blocks)
        if not self.overlap:
            return range(depth)
        epoch, step = key[-2:]
        # Without the epoch, a batch at the same position would have the same windows in every epoch, if the
        # number of batches is even.
        return range(1 - (int(epoch) + int(step)) % 2, depth, 2)
