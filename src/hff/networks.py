"""Networks as tables: one `Row` a layer, one `Block` built from each row; no learning rule is known here."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hff.errors import UserError, unknown

Shape = tuple[int, ...]
Activation = Literal["relu", "tanh", "sin", "abs", "step"]
Norm = Literal["none", "batch", "layer"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "abs": torch.abs,
    "step": lambda f: (f > 0).to(f.dtype),
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
class Row:
    """One row of a network's table."""

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
    norm_at: Literal["input", "preactivation", "output"] = "preactivation"
    dropout: float = 0.0
    pool: Pool | None = None
    aux_channels: int | None = None
    """Width of an auxiliary head beside this row, where the paper's table names one."""


class Block(nn.Module):
    """One layer: norm, affine map, activation, dropout, pooling, in the places that its row names.

    It takes in_shape [...], the activation gives map_shape [...], and out_shape [...] is handed on.
    """

    def __init__(self, row: Row, in_shape: Shape) -> None:
        super().__init__()
        self.row = row
        self.in_shape = in_shape
        if row.activation not in ACTIVATIONS:
            raise unknown("activation", row.activation, ACTIVATIONS)
        self.activation = ACTIVATIONS[row.activation]
        self.affine: nn.Conv2d | nn.Linear
        if row.kind == "conv":
            if len(in_shape) != 3:
                raise UserError(
                    f"A convolution needs images [C, H, W], but the input has shape {list(in_shape)}."
                )
            self.affine = nn.Conv2d(
                in_shape[0], row.width, row.kernel, row.stride, row.padding, groups=row.groups, bias=row.bias
            )
            self.map_shape: Shape = (row.width, *(_extent(n, row) for n in in_shape[1:]))
        else:
            self.affine = nn.Linear(_numel(in_shape), row.width, bias=row.bias)
            self.map_shape = (row.width,)
        self.out_shape = self.map_shape
        if row.pool is not None and row.kind == "conv":
            self.out_shape = (row.width, *(_pooled(n, row.pool) for n in self.map_shape[1:]))
        if min(*self.map_shape, *self.out_shape) < 1:
            raise UserError(f"The input {list(in_shape)} is too small for a layer of this network.")
        shapes = {"input": in_shape, "preactivation": self.map_shape, "output": self.out_shape}
        self.norm = _make_norm(row.norm, shapes[row.norm_at])
        self.dropout = nn.Dropout(row.dropout)

    @property
    def hand_on_size(self) -> int:
        """How many numbers the block hands on for a sample."""
        return _numel(self.out_shape)

    def preactivation(self, x: Tensor) -> Tensor:
        """The affine map of the input [B, *in_shape] -> [B, *map_shape] (Eq. 3)."""
        x = self._normed("input", x)
        if isinstance(self.affine, nn.Linear):
            x = x.flatten(1)
        f: Tensor = self.affine(x)
        return self._normed("preactivation", f)

    def activate(self, f: Tensor) -> Tensor:
        """The activity [B, *map_shape], before pooling (Eq. 4)."""
        h: Tensor = self.activation(f)
        return h

    def hand_on(self, h: Tensor) -> Tensor:
        """What the next block gets of the activity: [B, *map_shape] -> [B, *out_shape]."""
        if self.row.pool is not None and self.row.kind == "conv":
            h = self.row.pool(h)
        out: Tensor = self.dropout(self._normed("output", h))
        return out

    def _normed(self, place: str, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x) if self.row.norm_at == place else x
        return y

    def forward(self, x: Tensor) -> Tensor:
        return self.hand_on(self.activate(self.preactivation(x)))

    def extra_repr(self) -> str:
        return f"{list(self.in_shape)} -> {list(self.out_shape)}, {self.row.activation}"


@dataclass(frozen=True)
class Network:
    """A table with the shape of its input: everything a method needs to build its blocks."""

    name: str
    in_shape: Shape
    rows: tuple[Row, ...]

    def blocks(self) -> list[Block]:
        """Fresh blocks, initialised from torch's global generator."""
        blocks: list[Block] = []
        shape = self.in_shape
        for row in self.rows:
            try:
                blocks.append(Block(row, shape))
            except UserError as error:
                raise self._too_small(error) from None
            shape = blocks[-1].out_shape
        return blocks

    def _too_small(self, error: UserError) -> UserError:
        if len(self.in_shape) != 3 or all(row.kind == "linear" for row in self.rows):
            return error
        smallest = next((n for n in range(1, 513) if _fits(self.rows, (self.in_shape[0], n, n))), None)
        given = "x".join(map(str, self.in_shape[1:]))
        return UserError(
            f"Network {self.name!r} needs images of {smallest}x{smallest} pixels or more, not {given}."
        )


Table = Callable[..., list[Row]]
networks: dict[str, Table] = {}
"""Every table by name; its keyword-only parameters are its configuration."""


def register(table: Table) -> Table:
    networks[table.__name__] = table
    return table


def network(name: str, in_shape: Sequence[int], classes: int, **options: Any) -> Network:
    """The network of that name for inputs [*in_shape] and so many classes."""
    if name not in networks:
        raise unknown("network", name, networks)
    for option in options:
        valid = [
            p.name for p in inspect.signature(networks[name]).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        if option not in valid:
            raise unknown(f"parameter of network {name!r}:", option, valid)
    return Network(name, tuple(in_shape), tuple(networks[name](classes, **options)))


@register
def mlp(
    classes: int,
    *,
    widths: tuple[int, ...] = (2000, 2000, 2000),
    activation: Activation = "relu",
    norm: Norm = "none",
    dropout: float = 0.0,
    bias: bool = True,
) -> list[Row]:
    """Fully connected layers; the last hidden layer is the last row.

    Args:
        widths: units of each layer.
        activation: nonlinearity of every layer.
        norm: normalisation between affine map and activation; the paper uses none.
        dropout: share of the activities that is dropped before they are handed on.
        bias: whether the affine maps have a bias.
    """
    return [
        Row("linear", width, activation=activation, norm=norm, dropout=dropout, bias=bias)
        for width in _positive("widths", widths)
    ]


@register
def cnn(
    classes: int,
    *,
    channels: tuple[int, ...] = (32, 64, 128),
    kernel: int = 3,
    pool: int = 2,
    activation: Activation = "relu",
    norm: Norm = "none",
    dropout: float = 0.0,
    bias: bool = True,
) -> list[Row]:
    """A small convolutional network: convolution, activation, max-pooling in each layer.

    Args:
        channels: output channels of each layer (1-32-64 for MNIST, 3-32-64-128 for CIFAR in the paper).
        kernel: side of the square kernels; the padding keeps the size.
        pool: side and stride of the max-pooling after each layer; 1 means none.
        activation: nonlinearity of every layer.
        norm: normalisation between affine map and activation; the paper uses none.
        dropout: share of the activities that is dropped before they are handed on.
        bias: whether the convolutions have a bias.
    """
    row = Row(
        "conv",
        0,
        kernel=kernel,
        padding=kernel // 2,
        pool=Pool(pool, pool) if pool > 1 else None,
        activation=activation,
        norm=norm,
        dropout=dropout,
        bias=bias,
    )
    depth = len(channels)
    return [
        replace(row, width=width, aux_channels=32 * 2 ** (depth - 1 - i))
        for i, width in enumerate(_positive("channels", channels))
    ]


@register
def alexnet(
    classes: int, *, activation: Activation = "relu", norm: Norm = "none", width_factor: float = 1.0
) -> list[Row]:
    """AlexNet as in the paper's table: five convolutions, two layers of 4096, one of C units.

    Args:
        activation: nonlinearity of every layer.
        norm: normalisation between affine map and activation; the paper uses none.
        width_factor: multiplies every width but the last, for small trials.
    """
    pool = Pool(3, 2)
    rows = [
        Row("conv", 64, kernel=11, stride=4, padding=2, pool=pool, aux_channels=256),
        Row("conv", 192, kernel=5, padding=2, pool=pool, aux_channels=128),
        Row("conv", 384, aux_channels=64),
        Row("conv", 256, aux_channels=32),
        Row("conv", 256, pool=pool, aux_channels=32),
    ]
    return _with_head(rows, (4096, 4096), classes, activation, norm, width_factor)


_VGG_POOL = Pool(2, 2)


@register
def vgg11(
    classes: int,
    *,
    activation: Activation = "relu",
    norm: Norm = "none",
    hidden: int = 512,
    width_factor: float = 1.0,
) -> list[Row]:
    """VGG11 as in the paper's table: eight convolutions, two layers of 512, one of C units.

    Args:
        activation: nonlinearity of every layer.
        norm: normalisation between affine map and activation; the paper uses none.
        hidden: units of the two fully connected layers before the last.
        width_factor: multiplies every width but the last, for small trials.
    """
    widths = (64, 128, 256, 256, 512, 512, 512, 512)
    aux = (512, 512, 512, 512, 256, 256, 128, 64)
    rows = _vgg(widths, aux, pooled={0, 1, 3, 5, 7})
    return _with_head(rows, (hidden, hidden), classes, activation, norm, width_factor)


@register
def vgg16(
    classes: int,
    *,
    activation: Activation = "relu",
    norm: Norm = "none",
    hidden: int = 4096,
    width_factor: float = 1.0,
) -> list[Row]:
    """VGG16 as in the paper's table: thirteen convolutions, two layers of 4096, one of C units.

    Args:
        activation: nonlinearity of every layer.
        norm: normalisation between affine map and activation; the paper uses none.
        hidden: units of the two fully connected layers before the last.
        width_factor: multiplies every width but the last, for small trials.
    """
    widths = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    aux = (512, 512, 512, 512, 512, 512, 256, 256, 256, 128, 128, 64, 64)
    rows = _vgg(widths, aux, pooled={1, 3, 6, 9, 12})
    return _with_head(rows, (hidden, hidden), classes, activation, norm, width_factor)


def _vgg(widths: Sequence[int], aux: Sequence[int], pooled: set[int]) -> list[Row]:
    return [
        Row("conv", width, pool=_VGG_POOL if i in pooled else None, aux_channels=channels)
        for i, (width, channels) in enumerate(zip(widths, aux, strict=True))
    ]


def _with_head(
    rows: list[Row], hidden: Sequence[int], classes: int, activation: str, norm: Norm, factor: float
) -> list[Row]:
    """Adds the fully connected rows, then applies what all rows share."""
    scaled = [*rows, *(Row("linear", width) for width in hidden)]
    if factor != 1.0:
        scaled = [replace(row, width=max(1, round(row.width * factor))) for row in scaled]
    return [replace(row, activation=activation, norm=norm) for row in [*scaled, Row("linear", classes)]]


def _positive(name: str, widths: Sequence[int]) -> Sequence[int]:
    if not widths or min(widths) < 1:
        raise UserError(f"{name} must be one or more positive numbers, not {list(widths)}.")
    return widths


def _fits(rows: Sequence[Row], shape: Shape) -> bool:
    for row in rows:
        if row.kind == "linear":
            return True
        map_shape = [_extent(n, row) for n in shape[1:]]
        out = [_pooled(n, row.pool) for n in map_shape] if row.pool else map_shape
        if min(*map_shape, *out) < 1:
            return False
        shape = (row.width, *out)
    return True


def _extent(n: int, row: Row) -> int:
    return (n + 2 * row.padding - row.kernel) // row.stride + 1


def _pooled(n: int, pool: Pool) -> int:
    return (n + 2 * pool.padding - pool.size) // pool.stride + 1


def _numel(shape: Shape) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _make_norm(norm: Norm, shape: Shape) -> nn.Module:
    if norm == "none":
        return nn.Identity()
    if norm == "layer":
        return nn.LayerNorm(list(shape))
    return nn.BatchNorm2d(shape[0]) if len(shape) == 3 else nn.BatchNorm1d(shape[0])
