"""The modes in which a method is evaluated."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(method: nn.Module) -> Iterator[None]:
    """Turns gradients off and puts all modules in evaluation mode; restores the mode of each at the end."""
    modes = {module: module.training for module in method.modules()}
    method.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def prediction_mode(method: nn.Module) -> AbstractContextManager[None]:
    """Like `evaluation_mode`, at no cost if the method is in it: a prediction may take microseconds."""
    return evaluation_mode(method) if method.training else torch.no_grad()
