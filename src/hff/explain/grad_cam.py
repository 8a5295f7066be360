"""Grad-CAM (Selvaraju et al. 2017): the channels of a map, weighted by the mean gradient of a score."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from hff.errors import UserError
from hff.explain.contributions import Choose
from hff.methods import Method
from hff.methods.families.local import LocalMethod
from hff.networks import Block

REFUSED = "{title} has no gradient of a score with respect to its maps; choose occlusion."
Found = tuple[int, Tensor, Tensor, Tensor]


def grad_cam(method: Method, x: Tensor, choose: Choose) -> list[Found]:
    """The (layer, scores [B, C], classes [B], map [B, H, W]) of every layer that has a map.

    The score is that of the layer, or the final one for layers without scores. Negative values are cut off.

    Args:
        method: the method, in evaluation mode.
        x: the inputs, after preprocessing.
        choose: the class to explain, from the number of a layer and its scores.
    """
    if not all(isinstance(block, Block) for block in method.blocks):
        raise UserError(REFUSED.format(title=method.info.title))
    if all(len(method.block(layer).out_shape) != 3 for layer in range(len(method.blocks))):
        raise UserError("Grad-CAM needs layers with maps, but this network has none; choose occlusion.")
    with torch.enable_grad():
        if isinstance(method, LocalMethod) and type(method).scores_of is LocalMethod.scores_of:
            return _of_local(method, x, choose)
        return _of_chain(method, x, choose)


def _of_local(method: LocalMethod, x: Tensor, choose: Choose) -> list[Found]:
    """Each layer by the gradient of its own score with respect to its own features."""
    maps: list[Found] = []
    h = method.stem(x).detach()
    top = len(method.blocks) - 1
    for layer in range(top + 1):
        features = method.features(layer, h).detach().requires_grad_()
        out = method.next_input(layer, features, h)
        if method.classifier is not None and layer == top:
            scores = method.classifier(out.flatten(1))
        else:
            scores = method.scores(layer, features)
        h = out.detach()
        if features.dim() == 4:
            classes = choose(layer, scores.detach())
            maps.append((layer, scores.detach(), classes, _map(method, features, scores, classes)))
    return maps


def _of_chain(method: Method, x: Tensor, choose: Choose) -> list[Found]:
    """Each layer by the gradient of the last scores with respect to the output of its block."""
    outputs: dict[int, Tensor] = {}

    def keep(layer: int, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        # A copy, because dropout returns its input in evaluation mode.
        outputs[layer] = output.view_as(output)
        return outputs[layer]

    with ExitStack() as stack:
        for layer in range(len(method.blocks)):
            hook = method.block(layer).dropout.register_forward_hook(
                lambda *args, layer=layer: keep(layer, *args)
            )
            stack.callback(hook.remove)
        found = dict(method.layer_scores(x.detach().requires_grad_()))
    scores = found[max(found)]
    maps = {layer: each for layer, each in outputs.items() if each.dim() == 4 and len(each) == len(x)}
    if len(found) > 1 or not maps or not scores.requires_grad:
        raise UserError(REFUSED.format(title=method.info.title))
    classes = choose(max(found), scores.detach())
    return [
        (layer, scores.detach(), classes, _map(method, each, scores, classes)) for layer, each in maps.items()
    ]


def _map(method: Method, features: Tensor, scores: Tensor, classes: Tensor) -> Tensor:
    own = scores.gather(1, classes.unsqueeze(1)).sum()
    slope = None
    if own.requires_grad:
        (slope,) = torch.autograd.grad(own, features, retain_graph=True, allow_unused=True)
    if slope is None:
        raise UserError(REFUSED.format(title=method.info.title))
    weights = slope.mean((2, 3), keepdim=True)
    return (weights * features).sum(1).clamp_min(0).detach()
