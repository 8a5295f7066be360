"""Affine layers: a convolution or a linear map with norm, activation, pooling and dropout."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff.errors import UserError, unknown
from hff.networks.block import Block, Row, Shape, TooSmall

Activation = Literal[
    "relu", "leaky_relu", "gelu", "tanh", "hard_tanh", "sigmoid", "sin", "abs", "step", "triangle", "identity"
]
Norm = Literal["none", "batch", "batch_plain", "layer", "layer_plain"]
"""The plain norms are without learned gain and bias."""
Place = Literal["input", "preactivation", "output"]
"""Where a norm stands: on what the affine map reads, on what it gives, or on what is handed on."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": lambda f: F.leaky_relu(f, 0.01),
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "hard_tanh": F.hardtanh,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "abs": torch.abs,
    "step": lambda f: (f > 0).to(f.dtype),
    "triangle": lambda f: F.relu(f - f.mean(1, keepdim=True)),
    "identity": lambda f: f,
}
WITHOUT_GRADIENT = frozenset({"step"})


@dataclass(frozen=True)
class Pool:
    """A pooling window."""

    size: int
    stride: int
    padding: int = 0
    kind: Literal["max", "average"] = "max"

    def __call__(self, h: Tensor) -> Tensor:
        pool = F.max_pool2d if self.kind == "max" else F.avg_pool2d
        return pool(h, self.size, self.stride, self.padding)


@dataclass(frozen=True)
class AffineRow(Row):
    """A row that builds an `AffineBlock`."""

    kind: Literal["conv", "linear"]
    width: int
    """Output channels or units."""
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    groups: int = 1
    bias: bool = True
    activation: str = "relu"
    norm: Norm = "none"
    norm_at: Place = "preactivation"
    dropout: float = 0.0
    pool: Pool | None = None
    aux_channels: int | None = None
    norm_eps: float = 1e-5
    downsample: int = 1
    """Side of the input's patches that a convolution first moves into channels; 1 moves none."""
    padding_mode: Literal["zeros", "reflect"] = "zeros"
    """Values of a convolution's padding: zeros, or the map's mirror image, which `affine_input` adds."""
    power: float = 1.0
    """Exponent of the activity."""

    def build(self, in_shape: Shape) -> "AffineBlock":
        return AffineBlock(self, in_shape)

    def out_shape(self, in_shape: Shape) -> Shape:
        return shapes(self, in_shape)[2]


class AffineBlock(Block):
    """Down-sampling, norm, affine map, activation, pooling and dropout, as the row says.

    The block takes [*in_shape]. Its affine map takes [*affine_in_shape], which differs by down-sampling and
    mirrored borders. The activation gives [*map_shape], and pooling gives [*out_shape].
    """

    row: AffineRow

    def __init__(self, row: AffineRow, in_shape: Shape) -> None:
        affine_in_shape, map_shape, out_shape = shapes(row, in_shape)
        super().__init__(row, in_shape, out_shape, row.dropout)
        self.affine_in_shape = affine_in_shape
        self.map_shape = map_shape
        if row.activation not in ACTIVATIONS:
            raise unknown("activation", row.activation, ACTIVATIONS)
        self.activation = ACTIVATIONS[row.activation]
        self.affine = _make_affine(row, self.affine_in_shape)
        # The mirror image at the borders comes after the norm, or it would weigh in its statistics.
        bare = (self.affine_in_shape[0], *(n - 2 * _mirrored(row) for n in self.affine_in_shape[1:]))
        places = {"input": bare, "preactivation": self.map_shape, "output": self.out_shape}
        self.norm = _make_norm(row, places[row.norm_at])

    @property
    def affine_in_evaluation(self) -> bool:
        """Whether `preactivation`, in evaluation mode, is an affine function of its input."""
        return self.row.norm in ("none", "batch", "batch_plain") or self.row.norm_at == "output"

    def affine_input(self, x: Tensor) -> Tensor:
        """What the affine map reads: [B, *in_shape] -> [B, *read_shape], flat for a linear map."""
        if self.row.downsample > 1:
            x = F.pixel_unshuffle(x, self.row.downsample)
        x = self._normed("input", x)
        if border := _mirrored(self.row):
            x = F.pad(x, (border,) * 4, mode="reflect")
        return x.flatten(1) if isinstance(self.affine, nn.Linear) else x

    def normalize(self, f: Tensor) -> Tensor:
        """What the affine map gives [B, *map_shape], after the norm where the row puts it there."""
        return self._normed("preactivation", f)

    def preactivation(self, x: Tensor) -> Tensor:
        """The affine map of the input [B, *in_shape] -> [B, *map_shape] (Eq. 3)."""
        return self.normalize(self.affine(self.affine_input(x)))

    def activate(self, f: Tensor) -> Tensor:
        """The activity [B, *map_shape], before pooling (Eq. 4)."""
        h: Tensor = self.activation(f)
        return h if self.row.power == 1 else _raised(h, self.row.power)

    def pooled(self, h: Tensor) -> Tensor:
        """The map after pooling and the norm of the output: [B, *map_shape] -> [B, *out_shape]."""
        if self.row.pool is not None and self.row.kind == "conv":
            h = self.row.pool(h)
        return self._normed("output", h)

    def output(self, h: Tensor) -> Tensor:
        """What the next block gets of the activity: [B, *map_shape] -> [B, *out_shape]."""
        out: Tensor = self.dropout(self.pooled(h))
        return out

    def activity(self, x: Tensor) -> Tensor:
        """All but the dropout, for losses that judge every unit: [B, *in_shape] -> [B, *out_shape]."""
        return self.pooled(self.activate(self.preactivation(x)))

    def _normed(self, place: Place, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x) if self.row.norm_at == place else x
        return y

    def extra_repr(self) -> str:
        return f"{list(self.in_shape)} -> {list(self.out_shape)}, {self.row.activation}"


def shapes(row: AffineRow, in_shape: Shape) -> tuple[Shape, Shape, Shape]:
    """What the affine map of the row reads, what it gives and what is handed on, for inputs [*in_shape]."""
    if row.kind == "linear":
        if row.downsample != 1:
            raise UserError(
                "Only convolutions down-sample their input; leave out downsample in linear layers."
            )
        return in_shape, (row.width,), (row.width,)
    if len(in_shape) != 3:
        raise UserError(f"A convolution needs images [C, H, W], but the input has shape {list(in_shape)}.")
    factor = row.downsample
    channels, *size = in_shape
    if any(n % factor for n in size):
        raise UserError(
            f"Down-sampling by {factor} needs maps whose height and width {factor} divides, not "
            f"{'x'.join(map(str, size))}; resize the images or down-sample elsewhere."
        )
    reads = (channels * factor**2, *(n // factor for n in size))
    border = _mirrored(row)
    if border >= min(reads[1:]):
        raise TooSmall(f"The input {list(in_shape)} is too small to be mirrored at its borders.")
    reads = (reads[0], *(n + 2 * border for n in reads[1:]))
    gives = (row.width, *(_windows(n, row.kernel, row.stride, row.padding - border) for n in reads[1:]))
    out = gives
    if row.pool is not None:
        pool = row.pool
        out = (row.width, *(_windows(n, pool.size, pool.stride, pool.padding) for n in gives[1:]))
    if min(*gives, *out) < 1:
        raise TooSmall(f"The input {list(in_shape)} is too small for a layer of this network.")
    return reads, gives, out


def _mirrored(row: AffineRow) -> int:
    """How many pixels a row adds to each border by mirroring."""
    return row.padding if row.kind == "conv" and row.padding_mode == "reflect" else 0


def _raised(h: Tensor, power: float) -> Tensor:
    """h to a power, with the gradient 0 at zero, where that of a root is infinite."""
    above = h > 0
    return torch.where(above, torch.where(above, h, 1) ** power, 0)


def _windows(n: int, size: int, stride: int, padding: int) -> int:
    return (n + 2 * padding - size) // stride + 1


def _make_affine(row: AffineRow, shape: Shape) -> nn.Conv2d | nn.Linear:
    if row.kind == "linear":
        return nn.Linear(math.prod(shape), row.width, bias=row.bias)
    if shape[0] % row.groups or row.width % row.groups:
        raise UserError(
            f"A convolution from {shape[0]} to {row.width} channels cannot have {row.groups} groups; "
            f"choose numbers of channels that {row.groups} divides."
        )
    return nn.Conv2d(
        shape[0],
        row.width,
        row.kernel,
        row.stride,
        row.padding - _mirrored(row),
        groups=row.groups,
        bias=row.bias,
    )


def _make_norm(row: AffineRow, shape: Shape) -> nn.Module:
    if row.norm == "none":
        return nn.Identity()
    if row.norm in ("batch", "batch_plain"):
        batch = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
        return batch(shape[0], row.norm_eps, affine=row.norm == "batch")
    return nn.LayerNorm(list(shape), row.norm_eps, elementwise_affine=row.norm == "layer")
