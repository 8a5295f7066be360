"""Forward-Forward with Cortical Loops (reconstruction): a label in every layer, feedback from above."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hff import functional
from hff.batch import Batch
from hff.errors import require
from hff.methods.families.pairs import in_parts, scale_by_fan_in
from hff.methods.method import Method, MethodInfo, ParameterSet, ReadOut, Stage, group_name, register
from hff.modules.labels import wrong_labels
from hff.networks import Network


@register
class FFCL(Method):
    """The input of a layer is the features below, the features above from the previous step, and the label.

    A reconstruction from the paper's abstract and a published summary; no equation could be confirmed.
    The activities for K labels at once are [B, K, width]. Features without a label have K = 1 and are shared
    by all labels, so a prediction tries all classes at the cost of one.

    Args:
        steps: number of forward passes through the network; from the second pass on, each layer also gets
            the features above it. 1 is direct labeling without loops (FFDL in the paper).
        threshold: mean squared activity that separates true from wrong labels.
        label_scale: the value of the label's one-hot entry.
        forward_features: the next layer gets features without a label (free), or those of each label
            (conditioned), which costs C times the passes.
        read_out: layers whose goodness predicts; the mean of all layers is equivalent to their sum.
    """

    name = "ffcl"
    info = MethodInfo(
        title="Forward-Forward with Cortical Loops (reconstruction)",
        paper="Karkehabadi, Homayoun and Sasan 2024, FFCL: Forward-Forward Net with Cortical Loops, Training "
        "and Inference on Edge Without Backpropagation (arXiv 2405.12443)",
        passes="2",
        needs_negatives=True,
        supports=frozenset({"linear"}),
        top_signal=True,
        signal="feedback",
        layer_local=False,
        steps_within_batch=True,
        learning_rate=3e-3,
    )

    fixed_inputs = False

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        steps: int = 2,
        threshold: float = 1.0,
        label_scale: float = 5.0,
        forward_features: Literal["free", "conditioned"] = "free",
        read_out: ReadOut = "mean",
    ) -> None:
        super().__init__(network, classes, read_out=read_out)
        require(steps >= 1, f"steps must be at least 1, not {steps}.")
        require(label_scale > 0, f"label_scale must be above 0, not {label_scale:g}.")
        scale_by_fan_in(self)
        self.steps = steps
        self.threshold = threshold
        self.label_scale = label_scale
        self.conditioned = forward_features == "conditioned"
        widths = [row.width for row in network.rows]
        reach = classes**-0.5
        self.label_vectors = nn.ParameterList(torch.empty(classes, n).uniform_(-reach, reach) for n in widths)
        looped = widths if steps > 1 else []
        self.feedback = nn.ModuleList(
            nn.Linear(above, width, bias=False) for width, above in pairwise(looped)
        )

    @property
    def top_signal(self) -> bool:
        return self.steps > 1

    @property
    def steps_within_batch(self) -> bool:
        return self.steps > 1

    @property
    def passes(self) -> int:
        return self.steps * (self.classes if self.conditioned else 1)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        return {
            group_name(layer): [
                ParameterSet(
                    [
                        *self.blocks[layer].parameters(),
                        *self.feedback[layer : layer + 1].parameters(),
                        self.label_vectors[layer],
                    ]
                )
            ]
            for layer in stage.blocks
        }

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        wrong = wrong_labels(batch.y, self.classes, batch.draw("negatives"))
        labels = torch.stack([batch.y, wrong], 1)
        for _, layer, base in self._walk(batch.x, labels, local=True):
            positive, negative = self._goodness(layer, base, labels).unbind(1)
            loss = functional.forward_forward_loss(positive, negative, self.threshold)
            loss.backward()
            yield group_name(layer), loss.detach()

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        yield from in_parts(self, self._candidate_scores, x)

    def _candidate_scores(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yields (layer, goodness [B, C] of each class as the label) of the last step."""
        every = torch.arange(self.classes, device=x.device).unsqueeze(0)
        for step, layer, base in self._walk(x, every):
            if step == self.steps - 1:
                yield layer, self._goodness(layer, base, every)

    def _walk(self, x: Tensor, labels: Tensor, *, local: bool = False) -> Iterator[tuple[int, int, Tensor]]:
        """Yields (step, layer, preactivation without the label [B, 1 or K, width]) for labels [B, K].

        The output of a layer is computed before the layer is yielded, so before it learns; local detaches it.
        """
        depth = len(self.blocks)
        features: list[Tensor | None] = [None] * (depth + 1)
        for step in range(self.steps):
            h = x.unsqueeze(1)
            for layer in range(depth):
                base = _each(self.affine_block(layer).preactivation, _each(functional.unit_power, h))
                if (above := features[layer + 1]) is not None:
                    base = base + _each(self.feedback[layer], _each(functional.unit_power, above))
                labeled = self._labeled(layer, base, labels) if self.conditioned else base
                out = _each(self.affine_block(layer).output, self.affine_block(layer).activate(labeled))
                h = features[layer] = out.detach() if local else out
                yield step, layer, base

    def _labeled(self, layer: int, base: Tensor, labels: Tensor) -> Tensor:
        """The preactivation of a layer with each of the labels [B, K] added: [B, K, width]."""
        vectors: Tensor = F.embedding(labels, self.label_vectors[layer])
        return base + self.label_scale * vectors

    def _goodness(self, layer: int, base: Tensor, labels: Tensor) -> Tensor:
        """The goodness [B, K] of each label."""
        activity = self.affine_block(layer).activate(self._labeled(layer, base, labels))
        return _each(functional.mean_goodness, _each(self.affine_block(layer).pooled, activity))


def _each(function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """Applies a function of [N, ...] to every sample and label of h [B, K, ...]."""
    out: Tensor = function(h.flatten(0, 1)).unflatten(0, h.shape[:2])
    return out
