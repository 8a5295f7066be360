"""Affine layers: a convolution or a linear map with norm, activation, pooling and dropout."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff import gradients
from hff.errors import UserError, unknown
from hff.networks.block import Block, Row, Shape, TooSmall
from hff.networks.recording import Pool as Pool
from hff.networks.recording import Recording

Activation = Literal[
    "relu", "leaky_relu", "gelu", "tanh", "hard_tanh", "sigmoid", "sin", "abs", "step", "triangle", "identity"
]
Norm = Literal["none", "batch", "batch_plain", "layer", "layer_plain"]
"""The plain norms have no learned gain and bias."""
Place = Literal["input", "preactivation", "output"]
"""What is normalized: the input of the affine map, its output, or the output of the block."""

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
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "leaky_relu": lambda f: F.leaky_relu_(f, 0.01),
    "tanh": torch.tanh_,
    "hard_tanh": lambda f: F.hardtanh_(f),
    "sigmoid": torch.sigmoid_,
    "identity": lambda f: f,
}
"""The activations of `gradients.SLOPES`, which overwrite the preactivation."""
PART = 4_000_000
"""Bytes of the maps of a part of a batch, so that several of them fit in the cache of a processor."""
WITHOUT_GRADIENT = frozenset({"step"})
COMMUTE_WITH_MAX = frozenset({"relu", "leaky_relu", "hard_tanh", "identity"})
"""Activations that never decrease and do not round, so that they can follow max-pooling."""


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
    """Side of the input patches that a convolution first moves into channels; 1 means no downsampling."""
    padding_mode: Literal["zeros", "reflect"] = "zeros"
    """Padding of a convolution: zeros, or the mirrored border of the map, which `affine_input` adds."""
    power: float = 1.0
    """Exponent applied to the activity."""

    def build(self, in_shape: Shape) -> "AffineBlock":
        return AffineBlock(self, in_shape)

    def out_shape(self, in_shape: Shape) -> Shape:
        return shapes(self, in_shape)[2]


class AffineBlock(Block):
    """Downsampling, norm, affine map, activation, pooling and dropout, as configured by the row.

    The input of the block has shape [*in_shape]. The input of its affine map has shape [*affine_in_shape],
    which differs by downsampling and mirrored borders. The activation returns [*map_shape], and pooling
    returns [*out_shape].
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
        # The borders are mirrored after the norm, so that they do not affect its statistics.
        unpadded = (self.affine_in_shape[0], *(n - 2 * _mirrored(row) for n in self.affine_in_shape[1:]))
        places = {"input": unpadded, "preactivation": self.map_shape, "output": self.out_shape}
        self.norm = _make_norm(row, places[row.norm_at])
        self._recording: Recording | None = None
        # Small layers spend most of their time between operations, so the simplest kind takes a short cut.
        self._is_bare = row.kind == "linear" and row.norm == "none"

    @property
    def affine_in_evaluation(self) -> bool:
        """Whether `preactivation`, in evaluation mode, is an affine function of its input."""
        return self.row.norm in ("none", "batch", "batch_plain") or self.row.norm_at == "output"

    def affine_input(self, x: Tensor) -> Tensor:
        """The input of the affine map: [B, *in_shape] -> [B, *affine_in_shape]; flat for a linear map."""
        if self.row.downsample > 1:
            x = F.pixel_unshuffle(x, self.row.downsample)
        x = self._normed("input", x)
        if border := _mirrored(self.row):
            x = F.pad(x, (border,) * 4, mode="reflect")
        return x.flatten(1) if isinstance(self.affine, nn.Linear) else x

    def normalize(self, f: Tensor) -> Tensor:
        """Normalizes the output f of the affine map [B, *map_shape], if the row has a norm there."""
        return self._normed("preactivation", f)

    def preactivation(self, x: Tensor) -> Tensor:
        """The output of the affine map: [B, *in_shape] -> [B, *map_shape] (Eq. 3)."""
        if self._is_bare and self._recording is None:
            f: Tensor = self.affine(x if x.dim() == 2 else x.flatten(1))
            return f
        inputs = self.affine_input(x)
        if self._recording is not None:
            self._recording.inputs = inputs
        return self.normalize(self.affine(inputs))

    def activate(self, f: Tensor) -> Tensor:
        """The activity before pooling: [B, *map_shape] -> [B, *map_shape] (Eq. 4)."""
        if self._recording is not None:
            # Nothing else needs the preactivation.
            self._recording.activity = IN_PLACE[self.row.activation](f)
            return f
        h: Tensor = self.activation(f)
        return h if self.row.power == 1 else _raised(h, self.row.power)

    def pooled(self, h: Tensor) -> Tensor:
        """Pools the activity and normalizes the output: [B, *map_shape] -> [B, *out_shape]."""
        return self._normed("output", self._pool(h))

    def pooled_activity(self, f: Tensor) -> Tensor:
        """The same as `pooled(activate(f))` of a preactivation f: [B, *map_shape] -> [B, *out_shape].

        Where the two commute, the map is pooled first, so that the activation has fewer values to compute.
        """
        if not self.pools_first:
            return self.pooled(self.activate(f))
        if self._recording is not None:
            return self.activate(self._recording.pooled(f, self.row.pool))
        return self._normed("output", self.activate(self._pool(f)))

    def output_from(self, f: Tensor) -> Tensor:
        """The output of the block, from its preactivation: [B, *map_shape] -> [B, *out_shape]."""
        out: Tensor = self.dropout(self.pooled_activity(f))
        return out

    @property
    def pools_first(self) -> bool:
        """Whether max-pooling and the activation commute, in their values and in their gradients."""
        pool = self.row.pool
        conv_pool = pool is not None and pool.kind == "max" and self.row.kind == "conv"
        return conv_pool and self.row.activation in COMMUTE_WITH_MAX and self.row.power == 1

    def output(self, h: Tensor) -> Tensor:
        """The input of the next block, from the activity: [B, *map_shape] -> [B, *out_shape]."""
        if self._is_bare and self.dropout.p == 0:
            return h
        out: Tensor = self.dropout(self.pooled(h))
        return out

    def activity(self, x: Tensor) -> Tensor:
        """The output before dropout, for losses that use every unit: [B, *in_shape] -> [B, *out_shape]."""
        return self.pooled_activity(self.preactivation(x))

    @contextmanager
    def recorded(self) -> Iterator[Recording]:
        """Records what the backward pass of `activity` needs, for a block with `has_closed_form`."""
        self._recording = Recording()
        try:
            yield self._recording
        finally:
            self._recording = None

    def backward(self, recording: Recording, gradient: Tensor) -> None:
        """Adds to `.grad` of the affine map, from the gradient of the activity, whose memory is used again.

        The gradient of a map may be given as that of its averages over a grid. The kernels are those of
        autograd. A large batch is computed in parts, which takes less time because they fit in the cache, and
        less memory: apart from input and output of the block, only the gradient of one part exists.
        """
        affine, size = self.affine, recording.activity.shape
        if isinstance(affine, nn.Linear):
            whole = recording.backward(slice(None), gradient, self.row.activation)
            self.set_gradients(recording.inputs, whole)
            return
        weight: Tensor | None = None
        bias: Tensor | None = None
        for part in _parts(size[0], math.prod(self.map_shape) * gradient.element_size()):
            slope = gradient[part]
            if slope.shape[2:] != size[2:]:
                slope = gradients.grid_pool(slope, size[2:])
            slope = recording.backward(part, slope, self.row.activation)
            _, more_weight, more_bias = torch.ops.aten.convolution_backward(
                slope,
                recording.inputs[part],
                affine.weight,
                None if affine.bias is None else affine.bias.shape,
                affine.stride,
                affine.padding,
                affine.dilation,
                False,
                (0, 0),
                affine.groups,
                (False, True, affine.bias is not None),
            )
            weight = more_weight if weight is None else weight.add_(more_weight)
            bias = more_bias if bias is None else bias.add_(more_bias)
        assert weight is not None
        add_gradient(affine.weight, weight)
        if affine.bias is not None and bias is not None:
            add_gradient(affine.bias, bias)

    def has_closed_form(self, preactivation: bool = False, *, kind: type[nn.Module] = nn.Linear) -> bool:
        """Whether `set_gradients` or `backward` is all that autograd would do: a known activation, no norm.

        Args:
            preactivation: whether the gradient is that of the preactivation, so that any activation will do.
            kind: the kind of affine map.
        """
        row, affine = self.row, self.affine
        return (
            type(affine) is kind
            and row.norm == "none"
            and (preactivation or (row.activation in gradients.SLOPES and row.power == 1))
            and (row.pool is None or kind is nn.Linear or self.pools_first)
            and affine.weight.requires_grad
            and (affine.bias is None or affine.bias.requires_grad)
            and not (affine._forward_hooks or affine._forward_pre_hooks or affine._backward_hooks)
        )

    def write_activity(self, out: Tensor, x: Tensor, *, preactivation: bool = False) -> None:
        """Writes the activity or the preactivation of a linear map without norm to `out` [B, D]."""
        weight, bias = self.affine.weight.t(), self.affine.bias
        x = x if x.dim() == 2 else x.flatten(1)
        if bias is None:
            torch.mm(x, weight, out=out)
        else:
            torch.addmm(bias, x, weight, out=out)
        if not preactivation:
            IN_PLACE[self.row.activation](out)

    def set_gradients(self, x: Tensor, gradient: Tensor, bias_gradient: Tensor | None = None) -> None:
        """Adds to `.grad` of a linear map, from its input x [B, *in_shape] and the output's gradient.

        The gradient of the bias is the sum of the output's gradient over the batch, unless it is given.
        """
        affine = self.affine
        add_gradient(affine.weight, gradient.t() @ (x if x.dim() == 2 else x.flatten(1)))
        if affine.bias is not None:
            add_gradient(affine.bias, gradient.sum(0) if bias_gradient is None else bias_gradient)

    def _pool(self, h: Tensor) -> Tensor:
        return self.row.pool(h) if self.row.pool is not None and self.row.kind == "conv" else h

    def _normed(self, place: Place, x: Tensor) -> Tensor:
        if self.row.norm == "none" or self.row.norm_at != place:
            return x
        y: Tensor = self.norm(x)
        return y

    def extra_repr(self) -> str:
        return f"{list(self.in_shape)} -> {list(self.out_shape)}, {self.row.activation}"


def add_gradient(parameter: Tensor, gradient: Tensor) -> None:
    """Adds to `.grad`, as `backward()` does."""
    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


def _parts(samples: int, bytes_of_each: int) -> Iterator[slice]:
    """Consecutive samples whose maps have at most `PART` bytes, or single ones."""
    size = max(1, PART // bytes_of_each)
    parts = -(-samples // size)
    bounds = [samples * part // parts for part in range(parts + 1)]
    return (slice(*each) for each in pairwise(bounds))


def shapes(row: AffineRow, in_shape: Shape) -> tuple[Shape, Shape, Shape]:
    """The shapes of the affine map's input and output, and of the block's output, for inputs [*in_shape]."""
    if row.kind == "linear":
        if row.downsample != 1:
            raise UserError("Only convolutions downsample their input; remove downsample from linear layers.")
        return in_shape, (row.width,), (row.width,)
    if len(in_shape) != 3:
        raise UserError(f"A convolution needs images [C, H, W], but the input has shape {list(in_shape)}.")
    factor = row.downsample
    channels, *size = in_shape
    if any(n % factor for n in size):
        raise UserError(
            f"Downsampling by {factor} needs maps whose height and width are divisible by {factor}, not "
            f"{'x'.join(map(str, size))}; resize the images or downsample in another layer."
        )
    sides = [n // factor for n in size]
    border = _mirrored(row)
    if border >= min(sides):
        raise TooSmall(f"The input {list(in_shape)} is too small to be mirrored at its borders.")
    affine_in = (channels * factor**2, *(n + 2 * border for n in sides))
    padding = row.padding - border
    affine_out = (row.width, *(_windows(n, row.kernel, row.stride, padding) for n in affine_in[1:]))
    out = affine_out
    if row.pool is not None:
        pool = row.pool
        out = (row.width, *(_windows(n, pool.size, pool.stride, pool.padding) for n in affine_out[1:]))
    if min(*affine_out, *out) < 1:
        raise TooSmall(f"The input {list(in_shape)} is too small for a layer of this network.")
    return affine_in, affine_out, out


def _mirrored(row: AffineRow) -> int:
    """The number of pixels that a row adds to each border by mirroring."""
    return row.padding if row.kind == "conv" and row.padding_mode == "reflect" else 0


def _raised(h: Tensor, power: float) -> Tensor:
    """h raised to a power. The gradient at zero is 0, because that of a root would be infinite."""
    above = h > 0
    return torch.where(above, torch.where(above, h, 1) ** power, 0)


def _windows(n: int, size: int, stride: int, padding: int) -> int:
    """The number of positions of a sliding window along a side of length n."""
    return (n + 2 * padding - size) // stride + 1


def _make_affine(row: AffineRow, shape: Shape) -> nn.Conv2d | nn.Linear:
    if row.kind == "linear":
        return nn.Linear(math.prod(shape), row.width, bias=row.bias)
    if shape[0] % row.groups or row.width % row.groups:
        raise UserError(
            f"A convolution from {shape[0]} to {row.width} channels cannot have {row.groups} groups; "
            f"choose numbers of channels that are divisible by {row.groups}."
        )
    convolution = nn.Conv2d(
        shape[0],
        row.width,
        row.kernel,
        row.stride,
        row.padding - _mirrored(row),
        groups=row.groups,
        bias=row.bias,
    )
    # Maps get the memory format of the weights. With channels last, pooling is several times as fast, and
    # convolutions do not have to rearrange their inputs.
    return convolution.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _make_norm(row: AffineRow, shape: Shape) -> nn.Module:
    if row.norm == "none":
        return nn.Identity()
    if row.norm in ("batch", "batch_plain"):
        batch = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
        return batch(shape[0], row.norm_eps, affine=row.norm == "batch")
    return nn.LayerNorm(list(shape), row.norm_eps, elementwise_affine=row.norm == "layer")
