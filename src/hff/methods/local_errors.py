"""Local errors: every layer predicts the labels and makes samples with the same label similar."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.early_exit import NarrowingScores
from hff.methods.families.head import HeadMethod
from hff.methods.method import Form, MethodInfo, register
from hff.modules.judges import BioJudge, Judge, zeroed
from hff.networks import AffineBlock, Network


@register
class LocalErrors(HeadMethod):
    """Each layer learns by a prediction loss, a similarity loss or both; a linear classifier learns on top.

    The published networks have batch norm and dropout, and leaky_relu with a similarity loss.

    Args:
        loss: loss of a layer: label prediction (pred), similarity between samples (sim), or both (predsim).
        similarity_weight: weight of the similarity loss in predsim; the prediction loss has 1 minus it.
        decoder_dim: a map with more numbers than this is average-pooled before the prediction.
        bio: whether to predict random codes of the labels and send the error of the prediction back through
            fixed random weights, so that no weight is used in both directions, even within a layer.
        code_dim: length of the random codes.
        read_out: the classifier on top (last), the prediction of a layer, or the mean of all.
    """

    name = "local_errors"
    info = MethodInfo(
        title="Local Errors",
        paper="Nøkland and Eidnes 2019, Training Neural Networks with Local Error Signals (arXiv 1901.06656)",
        supports="any",
        data_parallel=False,
        form=Form({"activation": "leaky_relu", "norm": "batch"}),
    )

    has_classifier = True

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        loss: Literal["predsim", "pred", "sim"] = "predsim",
        similarity_weight: float = 0.99,
        decoder_dim: int = 4096,
        bio: bool = False,
        code_dim: int = 128,
        **options: Any,
    ) -> None:
        super().__init__(network, classes, **options)
        if not 0 < similarity_weight < 1:
            raise UserError(
                f"similarity_weight must be between 0 and 1, not {similarity_weight:g}; use loss pred or sim "
                f"for one of the losses alone."
            )
        require(min(decoder_dim, code_dim) >= 1, "decoder_dim and code_dim must be at least 1.")
        if loss == "sim" and self.read_out != "last":
            raise UserError("With loss sim, only the classifier on top has scores; use read_out last.")
        self.similarity_weight = {"pred": 0.0, "sim": 1.0}.get(loss, similarity_weight)
        for layer in self.layers_with_head:
            mapped = self._map_block(layer)
            shape = mapped.map_shape if mapped else self.block(layer).out_shape
            self.heads[layer] = (
                BioJudge(shape, classes, decoder_dim, code_dim, predicts=loss != "sim")
                if bio
                else Judge(shape, classes, decoder_dim, predicts=loss != "sim", compares=loss != "pred")
            )
        self.classifier = zeroed(nn.Linear(self.block(len(self.blocks) - 1).out_features, classes))

    def features(self, layer: int, h: Tensor) -> Tensor:
        mapped = self._map_block(layer)
        return mapped.activate(mapped.preactivation(h)) if mapped else super().features(layer, h)

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        block, mapped = self.block(layer), self._map_block(layer)
        out = mapped.pooled(features) if mapped else features
        # Whole channels are dropped, as published, so dropout and pooling commute.
        drop = F.dropout2d if out.dim() == 4 else F.dropout
        return drop(out, block.dropout.p, block.training)

    def scores(self, layer: int, features: Tensor) -> Tensor:
        return self._judge(layer).scores(features)

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        judge, y, share = self._judge(layer), batch.y, self.similarity_weight
        if share == 0:
            return judge.prediction_loss(features, y)
        if share == 1:
            return judge.similarity_loss(features, y)
        return (1 - share) * judge.prediction_loss(features, y) + share * judge.similarity_loss(features, y)

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        if self.similarity_weight < 1:
            return super().layer_scores(x, depth)
        return self.scores_of([len(self.blocks) - 1], x, depth)

    def narrowing_scores(self, layers: Sequence[int], x: Tensor) -> NarrowingScores:
        # With the similarity loss alone, only the head of the last layer learns.
        if self.similarity_weight < 1:
            return super().narrowing_scores(layers, x)
        return self.scores_of([len(self.blocks) - 1], x)

    def _map_block(self, layer: int) -> AffineBlock | None:
        """The block if losses use its map before pooling, as published; not if a norm follows the pooling."""
        block = self.block(layer)
        if not isinstance(block, AffineBlock) or block.row.kind != "conv":
            return None
        return block if block.row.norm == "none" or block.row.norm_at != "output" else None

    def _judge(self, layer: int) -> Judge:
        judge = self.heads[layer]
        assert isinstance(judge, Judge)
        return judge
