"""Unit-norm class prototypes."""

from typing import Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.errors import UserError

Update = Literal["gradient", "class_means", "shadow", "smoothed"]
Init = Literal["random", "class_means", "simplex"]


class Prototypes(nn.Module):
    """P unit vectors in D dimensions for each of C classes: `vectors` [C, P, D].

    Args:
        update: "gradient" trains the vectors and projects them to the sphere after each step; "class_means"
            moves them toward the mean features of their class without gradients; "shadow" trains them by
            gradient and predicts with a moving average; "smoothed" takes the share 1 - decay of each step.
        decay: decay of the moving averages.
        init: "random", "class_means" (of the untrained features, see `set_class_means`), or "simplex"
            (maximally separated; needs D >= C - 1; with P > 1, noise separates the copies of a class).
    """

    vectors: Tensor
    sums: Tensor
    counts: Tensor

    def __init__(
        self,
        classes: int,
        dim: int,
        per_class: int = 1,
        *,
        update: Update = "gradient",
        decay: float = 0.99,
        init: Init = "random",
    ) -> None:
        super().__init__()
        if per_class < 1:
            raise UserError(f"prototypes_per_class must be at least 1, not {per_class}.")
        if not 0 <= decay <= 1:
            raise UserError(f"prototype_decay must lie between 0 and 1, not {decay}.")
        self.update = update
        self.decay = decay
        if init == "simplex":
            if dim < classes - 1:
                raise UserError(
                    f"No simplex of {classes} prototypes exists in {dim} dimensions: "
                    f"set prototype_init random, or use layers and heads with {classes - 1} or more units."
                )
            start = _apart(functional.simplex_etf(classes, dim), per_class)
        else:
            start = functional.project(torch.randn(classes, per_class, dim))
        if update == "class_means":
            self.register_buffer("vectors", start)
            self.register_buffer("sums", torch.zeros_like(start), persistent=False)
            self.register_buffer("counts", torch.zeros(classes, per_class), persistent=False)
        else:
            self.vectors = nn.Parameter(start)
        if update in ("shadow", "smoothed"):
            self.register_buffer("average", start.clone())

    def forward(self) -> Tensor:
        """Prototypes for computing scores in the current mode (training or evaluation) [C, P, D]."""
        return self.get_buffer("average") if self.update == "shadow" and not self.training else self.vectors

    def observe(self, features: Tensor, labels: Tensor) -> None:
        """Adds the directions of features [B, D] to the sums of the nearest prototypes of their class."""
        if self.update == "class_means":
            self._add(features, labels)

    @torch.no_grad()
    def _add(self, features: Tensor, labels: Tensor) -> None:
        directions = functional.project(features)
        own = functional.similarities(directions, self.vectors)[torch.arange(len(labels)), labels]
        nearest = (labels, own.argmax(1))
        self.sums.index_put_(nearest, directions, accumulate=True)
        self.counts.index_put_(nearest, torch.ones_like(own[:, 0]), accumulate=True)

    @torch.no_grad()
    def after_step(self) -> None:
        """Projects the vectors back to the sphere, or moves them toward the observed means."""
        if self.update == "class_means":
            self.vectors.copy_(functional.ema_class_means(self.vectors, self.sums, self.counts, self.decay))
            self.sums.zero_()
            self.counts.zero_()
            return
        # In place and without the checks of `project`, because this follows every step of every layer.
        self.vectors.div_(torch.linalg.vector_norm(self.vectors, dim=-1, keepdim=True).clamp_min_(1e-6))
        if self.update in ("shadow", "smoothed"):
            average = self.get_buffer("average")
            average.copy_(functional.project(self.decay * average + (1 - self.decay) * self.vectors))
            if self.update == "smoothed":
                self.vectors.copy_(average)

    @torch.no_grad()
    def set_class_means(self, sums: Tensor) -> None:
        """Initializes with the directions of the class sums [C, D]; classes without samples do not change."""
        means = functional.project(sums)
        known = means.ne(0).any(1)
        start = _apart(means, self.vectors.shape[1])
        self.vectors[known] = start[known].to(self.vectors.dtype)
        if self.update in ("shadow", "smoothed"):
            self.get_buffer("average").copy_(self.vectors)

    def reduced_buffers(self) -> list[Tensor]:
        """Buffers that must be summed over workers before `after_step`."""
        return [self.sums, self.counts] if self.update == "class_means" else []


def _apart(vectors: Tensor, per_class: int) -> Tensor:
    """P copies of each vector [C, D] -> [C, P, D], with noise: identical copies would never separate."""
    copies = vectors.unsqueeze(1).repeat(1, per_class, 1)
    if per_class > 1:
        copies = copies + 0.1 * functional.project(torch.randn_like(copies))
    return functional.project(copies)
