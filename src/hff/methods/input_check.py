"""The check of the inputs of `layer_scores`, which a user may call as well as the method itself."""

from collections.abc import Iterator
from functools import wraps
from typing import Any

from torch import Tensor


def check_inputs_of_layer_scores(rule: type) -> None:
    """Lets `layer_scores` refuse inputs that the network does not take, if the class of a rule defines it.

    Otherwise, every rule would have to do so itself, and most run lazily, when the first scores are read.
    """
    if "layer_scores" not in vars(rule):
        return
    scores = vars(rule)["layer_scores"]

    @wraps(scores)
    def checked(method: Any, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        if not depth:
            method.check_inputs(x)
        found: Iterator[tuple[int, Tensor]] = scores(method, x, depth)
        return found

    setattr(rule, "layer_scores", checked)  # noqa: B010
