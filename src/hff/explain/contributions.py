"""What each position of a map adds to the score of a layer of HFF, exactly.

The score is the inner product of a vector with prototypes. With the active units and the length of the vector
held as they are, the vector is an affine function of the map. So the score is a sum over the positions of the
map, plus a constant that comes from biases.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hff.errors import UserError
from hff.methods.hff import HFF
from hff.modules.grid_pool import grid_pool
from hff.modules.heads import Head
from hff.networks import AffineBlock
from hff.networks.block import module_at

Choose = Callable[[int, Tensor], Tensor]
"""The class [B] to explain, from the number of a layer and its scores [B, C]."""
EPS = 1e-6
"""The length below which `functional.project` gives zero."""


@dataclass(frozen=True)
class Contributions:
    """What the positions of a map contribute to the scores of one class for each sample."""

    layer: int
    scores: Tensor
    """The scores of all classes in this layer [B, C]."""
    classes: Tensor
    """The explained class of each sample [B]."""
    positions: Tensor
    """The contributions [B, H, W], including an equal share of `constant` for each position. Their sum is the
    score of the explained class."""
    constant: Tensor
    """The part of the score that does not depend on the map [B]."""
    map_of: int | None
    """The layer whose map has these positions; None for the input image."""


@dataclass(frozen=True)
class _Trace:
    """The values of one layer in a forward pass."""

    h: Tensor
    """The input of the block."""
    features: Tensor


def unsupported_reason(method: HFF) -> str | None:
    """Why the contributions of positions are not defined, in one sentence; None if they are."""
    if method.in_shape is not None and len(method.in_shape) != 3:
        return "Activation maps need images, but this run was trained on rows of a table."
    for layer in range(len(method.blocks)):
        block = method.block(layer)
        if len(block.out_shape) == 3:
            continue
        if not isinstance(block, AffineBlock) or not _is_affine(block):
            return (
                f"Layer {layer} is not an affine map and an activation, so its score is not a sum over "
                "positions; choose grad_cam or occlusion."
            )
    return None


def contributions(method: HFF, x: Tensor, choose: Choose) -> Iterator[Contributions]:
    """What each position contributes to the score of a class in every layer, for inputs [B, ...].

    A convolution is explained by its own map. A fully connected layer has no positions, so it is explained by
    the nearest map below it: that of a convolution, or the input image.

    Args:
        method: the method, in evaluation mode.
        x: the inputs, after preprocessing.
        choose: the class to explain.
    """
    traces: list[_Trace] = []
    h = method.stem(x)
    for layer in range(len(method.blocks)):
        features = method.features(layer, h)
        traces.append(_Trace(h, features))
        scores = method.scores(layer, features)
        classes = choose(layer, scores)
        slope, constant = _slope_of_score(method, layer, features, classes)
        taken = method.head_input(layer, features)
        head = module_at(method.heads, layer)
        map_of: int | None = layer
        if isinstance(head, Head) and taken.dim() == 4:
            slope, offset = _through_head(head, taken, slope)
            constant = constant + offset
        else:
            lowest, taken, slope, offset = _through_linear_blocks(method, traces, slope)
            constant = constant + offset
            map_of = lowest - 1 if lowest else None
        positions = (taken * slope).sum(1)
        shares = constant / positions[0].numel()
        yield Contributions(layer, scores, classes, positions + shares[:, None, None], constant, map_of)
        h = method.next_input(layer, features, h)


def _slope_of_score(method: HFF, layer: int, features: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """The slope [B, D] of the score at the vector before it is projected, and the constant [B].

    With several prototypes per class, log sum exp = sum_p r_p s_p + H(r) for the weights r = softmax(s),
    where H is the entropy. So the prototypes contribute with these weights, and the entropy is a constant.
    """
    head = module_at(method.heads, layer)
    taken = method.head_input(layer, features)
    vector = taken if isinstance(head, nn.Identity) else head(taken)
    if not method.uses_length(layer):
        length = torch.linalg.vector_norm(vector, dim=1, keepdim=True)
        scale = torch.where(length > EPS, 1 / length.clamp_min(EPS), 0.0)
    else:
        scale = torch.ones_like(vector[:, :1])
    own = module_at(method.prototypes, layer)()[classes]
    similarities = (own * (scale * vector).unsqueeze(1)).sum(2)
    weights = torch.softmax(method.temperature * similarities, dim=1)
    entropy = torch.special.entr(weights).sum(1) / method.temperature
    return scale * (weights.unsqueeze(2) * own).sum(1), entropy


def _through_head(head: Head, h: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The slope at the map h [B, C, H, W] that a head takes, from that at its output, and the constant [B].

    A hidden layer counts by its active linear part: units at zero contribute nothing.
    """
    cells = head.grid or (h.shape[2], h.shape[3])
    pooled = grid_pool(h, cells) if head.grid else h
    values = [pooled.flatten(1)]
    for module in head.project:
        values.append(module(values[-1]))
    constant = torch.zeros_like(slope[:, 0])
    for module, out in zip(reversed(head.project), reversed(values), strict=False):
        if isinstance(module, nn.Linear):
            if module.bias is not None:
                constant = constant + slope @ module.bias
            slope = slope @ module.weight
        else:
            slope = slope * (out > 0)
    slope = slope.unflatten(1, (h.shape[1], *cells))
    return (_pulled_back(lambda at: grid_pool(at, cells), h, slope) if head.grid else slope), constant


def _through_linear_blocks(
    method: HFF, traces: list[_Trace], slope: Tensor
) -> tuple[int, Tensor, Tensor, Tensor]:
    """Goes down from the vector of the last traced layer to the nearest map below it.

    Returns the lowest block that was passed, its input as a map [B, C, H, W], the slope there, and the
    constant.
    """
    constant = torch.zeros_like(slope[:, 0])
    judges_preactivation = method.loss_on == "pre"
    for layer in reversed(range(len(traces))):
        block, at = method.affine_block(layer), traces[layer]
        f = at.features if judges_preactivation else block.preactivation(at.h)
        top = layer == len(traces) - 1
        if not top or not judges_preactivation:
            out = block.activate(f)
            if not top and not method.scale_input:
                slope = slope / torch.linalg.vector_norm(out, dim=1, keepdim=True).clamp_min(EPS)
            slope, offset = _through_activation(block, f, out, slope)
            constant = constant + offset
        constant = constant + (slope * block.preactivation(torch.zeros_like(at.h))).sum(1)
        slope = _pulled_back(block.preactivation, at.h, slope)
        if len(block.in_shape) == 3:
            shape = (-1, *block.in_shape)
            return layer, at.h.reshape(shape), slope.reshape(shape), constant
    raise UserError("Activation maps need images, but this run was trained on rows of a table.")


def _through_activation(block: AffineBlock, f: Tensor, out: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The slope at the preactivation f, with every unit as the line from (0, act(0)) to (f, act(f))."""
    start = block.activate(torch.zeros_like(f))
    gate = torch.where(f.abs() > EPS, (out - start) / torch.where(f.abs() > EPS, f, 1), 0.0)
    return slope * gate, (slope * (out - gate * f)).sum(1)


def _pulled_back(affine: Callable[[Tensor], Tensor], at: Tensor, slope: Tensor) -> Tensor:
    """The slope at the input of an affine function, from that at its output."""
    with torch.enable_grad():
        leaf = at.detach().requires_grad_()
        (found,) = torch.autograd.grad(affine(leaf), leaf, slope)
    return found


def _is_affine(block: AffineBlock) -> bool:
    row = block.row
    return row.norm == "none" or (row.norm in ("batch", "batch_plain") and row.norm_at != "output")
