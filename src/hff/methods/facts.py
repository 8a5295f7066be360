"""Facts that follow from the modules of a method: its group, and the parameters that a prediction uses."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules import activation
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hff.errors import UserError
from hff.methods.modes import evaluation_mode
from hff.networks import Block

if TYPE_CHECKING:
    from hff.methods.method import Method

NONLINEAR = tuple(each for name in activation.__all__ if isinstance(each := getattr(activation, name), type))
"""The activation modules of torch."""


class Group(StrEnum):
    """What a rule is allowed to use. Comparisons group their rows by it."""

    LOCAL = "strictly local"
    """A block learns from its own activity, through heads without hidden units."""
    AUXILIARY = "auxiliary network with hidden layers"
    """A block learns through further layers of its own that have hidden units."""
    FEEDBACK = "feedback from the top"
    """A signal from the blocks above reaches a block, but not the gradient through them."""
    FURTHER = "gradient reaches further"
    """The gradient of a loss reaches some blocks below its own."""
    BACKPROP = "backprop"
    """The gradient of one loss reaches all blocks."""

    @property
    def short(self) -> str:
        """The group in one word, for narrow tables."""
        return self.name.lower()


def group_of(method: "Method") -> Group:
    """The group of an instance, from the facts that it declares."""
    if method.info.signal == "gradient" and method.gradient_reach == "all":
        return Group.BACKPROP
    if method.info.signal == "gradient" and method.gradient_reach:
        return Group.FURTHER
    if method.top_signal:
        return Group.FEEDBACK
    return Group.AUXILIARY if method.hidden_auxiliary else Group.LOCAL


def has_hidden_units(module: nn.Module) -> bool:
    """Whether a head contains an activation function or a block, so that it is more than one linear map."""
    return any(isinstance(each, (*NONLINEAR, Block)) for each in module.modules())


def prediction_parameters(method: "Method") -> int:
    """The number of parameters that a prediction of the read-out computes with, found by predicting once.

    A parameter counts if any operation of the prediction reads it. Running statistics and other buffers do
    not count, as in the number of all parameters.
    """
    if method.in_shape is None:
        raise UserError("The parameters of a prediction are known only if create_method made the method.")
    first = next(method.parameters(), None)
    if first is None:
        return 0
    x = torch.zeros(2, *method.in_shape, dtype=first.dtype, device=first.device)
    with evaluation_mode(method), _Reads() as reads:
        method(x)
    return sum(p.numel() for p in method.parameters() if _storage(p) in reads.storages)


class _Reads(TorchDispatchMode):
    """Collects the memory of all tensors that operations read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: set[int] = set()

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        options = options or {}
        for each in tree_leaves((arguments, options)):
            if isinstance(each, Tensor):
                self.storages.add(_storage(each))
        return function(*arguments, **options)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
