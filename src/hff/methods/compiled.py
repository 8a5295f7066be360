"""Compiling what a method computes by autograd: opt-in, because it takes seconds and rarely pays on a CPU."""

import os
import shutil
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import nn

from hff.errors import UserError

BACKEND = "inductor"
COMPILERS = ("g++", "clang++", "c++", "cl")
Result = TypeVar("Result")


class Compiled:
    """Compiled versions of functions, one for each set of parameters that require gradients.

    A function that was compiled while a layer was frozen would leave it untrained later. torch 2.13 compiles
    it again, but its documentation does not promise that.
    """

    def __init__(self) -> None:
        self._functions: dict[Any, Callable[..., Any]] = {}

    def __call__(
        self,
        name: str,
        function: Callable[..., Result],
        parameters: Iterable[nn.Parameter],
        *inputs: Any,
    ) -> Result:
        """The same as `function(*inputs)`.

        Args:
            name: a name of the function.
            function: the function.
            parameters: all parameters that the function uses.
            inputs: its arguments; numbers and text become part of the compiled function.
        """
        case = (name, tuple(parameter.requires_grad for parameter in parameters))
        if case not in self._functions:
            self._functions[case] = _compiled(function)
        try:
            result: Result = self._functions[case](*inputs)
        except Exception as error:
            # These modules are loaded only when something is compiled.
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            cause = " ".join(str(error).split("\n\n")[0].split())
            raise UserError(f"torch cannot compile this training; remove compile. ({cause})") from error
        return result

    def __reduce__(self) -> tuple[type["Compiled"], tuple[()]]:
        # A copy of a method compiles its own functions.
        return Compiled, ()


class Compilable:
    """A method whose forward pass and loss can be compiled."""

    compiled: Compiled | None = None
    """The compiled functions, if the setting `compile` is on; set by the trainer."""

    @property
    def compiles(self) -> bool:
        """Whether the setting `compile` can be used."""
        return True


def _compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    def run(*inputs: Any) -> Result:
        return function(*inputs)

    # torch stores what it has compiled by code, and gives up after 8 versions of the same code.
    run.__code__ = run.__code__.replace()
    # The same random numbers as without compiling.
    options: dict[str, Any] | None = {"fallback_random": True} if BACKEND == "inductor" else None
    compiled: Callable[..., Result] = torch.compile(run, backend=BACKEND, dynamic=False, options=options)
    return compiled


def missing_compiler() -> str | None:
    """Why nothing can be compiled on this machine, in one sentence; None if it can."""
    chosen = os.environ.get("CXX")
    if any(map(shutil.which, (chosen,) if chosen else COMPILERS)):
        return None
    missing = f"{chosen!r} (the variable CXX)" if chosen else "such as g++"
    return f"compile needs a C++ compiler {missing}, which is not installed; install one, or remove compile."
