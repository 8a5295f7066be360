"""Local errors: every layer predicts the labels, and makes samples as similar as their labels are."""

from collections.abc import Iterator
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.families.local import LocalMethod
from hff.methods.method import MethodInfo, register
from hff.modules.judges import BioJudge, Judge, zeroed
from hff.networks import AffineBlock, AffineRow, Network


@register
class LocalErrors(LocalMethod):
    """Each layer learns by a prediction loss, a similarity loss or both; a linear classifier learns on top.

    Networks that it was published with have batch norm, dropout, and leaky_relu with a similarity loss.

    Args:
        loss: what a layer learns by: prediction of the label, similarity between samples, or both.
        similarity_weight: share of the similarity in predsim; the prediction has the rest.
        decoder_dim: most numbers of a map that a prediction reads; a larger map is average-pooled first.
        bio: predict random codes of the labels, and let the error of the prediction come back through fixed
            random weights, so that even within a layer no weight is used in both directions.
        code_dim: length of the random codes.
        read_out: the classifier on top (last), or a layer's prediction, or the mean of all.
    """

    name = "local_errors"
    info = MethodInfo(
        title="Local Errors",
        paper="Nøkland and Eidnes 2019, Training Neural Networks with Local Error Signals (arXiv 1901.06656)",
        passes="1",
        needs_negatives=False,
        gradient_reach=0,
        supports="any",
        data_parallel=False,
    )

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
                f"similarity_weight must lie between 0 and 1, not {similarity_weight:g}; loss pred or sim "
                f"leaves one of the two out."
            )
        require(min(decoder_dim, code_dim) >= 1, "decoder_dim and code_dim must be at least 1.")
        if loss == "sim" and self.read_out != "last":
            raise UserError("With loss sim only the classifier on top has scores; leave read_out at last.")
        self.similarity_weight = {"pred": 0.0, "sim": 1.0}.get(loss, similarity_weight)
        for layer in range(len(self.blocks)):
            block = self.block(layer)
            shape = block.out_shape
            if isinstance(block, AffineBlock) and self._judges_map(layer):
                shape = block.map_shape
            self.heads[layer] = (
                BioJudge(shape, classes, decoder_dim, code_dim, predicts=loss != "sim")
                if bio
                else Judge(shape, classes, decoder_dim, predicts=loss != "sim", compares=loss != "pred")
            )
        self.classifier = zeroed(nn.Linear(self.block(len(self.blocks) - 1).out_features, classes))

    def features(self, layer: int, h: Tensor) -> Tensor:
        block = self.block(layer)
        if isinstance(block, AffineBlock) and self._judges_map(layer):
            return block.activate(block.preactivation(h))
        return block.activity(h)

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        block = self.block(layer)
        out = features
        if isinstance(block, AffineBlock) and self._judges_map(layer):
            out = block.pooled(features)
        # Whole channels are dropped, as published, so it makes no difference that pooling comes first.
        drop = F.dropout2d if out.dim() == 4 else F.dropout
        return drop(out, block.dropout.p, block.training)

    def scores(self, layer: int, features: Tensor) -> Tensor:
        return self._judge(layer).scores(features)

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        activity, y = features, batch.y
        judge, share = self._judge(layer), self.similarity_weight
        if share == 0:
            return judge.prediction_loss(activity, y)
        if share == 1:
            return judge.similarity_loss(activity, y)
        return (1 - share) * judge.prediction_loss(activity, y) + share * judge.similarity_loss(activity, y)

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        if self.similarity_weight < 1:
            return super().layer_scores(x, depth)
        return self.scores_of([len(self.blocks) - 1], x, depth)

    def _judges_map(self, layer: int) -> bool:
        """Whether the map before pooling is judged, as published; not where a norm follows that learns."""
        row = self.block(layer).row
        if not isinstance(row, AffineRow):
            return False
        return row.kind == "conv" and (row.norm == "none" or row.norm_at != "output")

    def _judge(self, layer: int) -> Judge:
        judge = self.heads[layer]
        assert isinstance(judge, Judge)
        return judge
