"""One optimizer for each group of parameters, and learning rate schedules."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import compress
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from hff.errors import UserError, quoted
from hff.methods import Method, Stage
from hff.training.settings import Settings

STEP, MOMENTUM = "step", "momentum_buffer"
QUANTITIES = {
    "adam": frozenset({STEP, "exp_avg", "exp_avg_sq"}),
    "adamw": frozenset({STEP, "exp_avg", "exp_avg_sq"}),
    "sgd": frozenset({MOMENTUM}),
    "rmsprop": frozenset({STEP, "square_avg", MOMENTUM}),
}
"""What each optimizer stores for a parameter; the momentum only if it is above 0."""


class Optimizers:
    """The optimizers of a stage, one for each group of parameters."""

    def __init__(self, method: Method, stage: Stage, settings: Settings) -> None:
        self.settings = settings
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in method.named_parameters()}
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        self._raw: dict[str, list[nn.Parameter]] = {}
        self.gradient_bytes: dict[str, int] = {}
        """The memory of the gradients of each group."""
        for group, sets in method.parameter_groups(stage).items():
            # Sets with equal settings share a call of the optimizer's kernel.
            merged: dict[tuple[float, float], list[nn.Parameter]] = {}
            for each in sets:
                decay = settings.weight_decay if each.weight_decay is None else each.weight_decay
                if each.parameters and not each.raw_update:
                    merged.setdefault((each.learning_rate, decay), []).extend(each.parameters)
            torch_groups: list[dict[str, Any]] = [
                {"params": parameters, "factor": factor, "weight_decay": decay}
                for (factor, decay), parameters in merged.items()
            ]
            self._raw[group] = [p for each in sets if each.raw_update for p in each.parameters]
            self.gradient_bytes[group] = sum(p.nbytes for each in sets for p in each.parameters)
            if torch_groups:
                self._optimizers[group] = _optimizer(torch_groups, settings)
        for optimizer in self._optimizers.values():
            if _is_fused_adam(optimizer):
                _start_adam(optimizer)
        self._adam_sets: dict[tuple[str, ...], list[AdamSet]] = {}

    def step(self, groups: tuple[str, ...], learning_rate: float) -> None:
        """Clips the gradients of each group, takes a step, then frees the gradients.

        A group without parameters is allowed: some methods update their weights themselves.
        """
        for group in groups:
            for parameter in self._raw.get(group, ()):
                if parameter.grad is not None:
                    parameter.data.sub_(parameter.grad)
                    parameter.grad = None
        optimizers = [self._optimizers[group] for group in groups if group in self._optimizers]
        if self.settings.clip:
            for optimizer in optimizers:
                parameters = [p for torch_group in optimizer.param_groups for p in torch_group["params"]]
                nn.utils.clip_grad_norm_(parameters, self.settings.clip)
        if all(_is_fused_adam(optimizer) for optimizer in optimizers):
            self._fused_adam_step(groups, optimizers, learning_rate)
            return
        for optimizer in optimizers:
            for torch_group in optimizer.param_groups:
                torch_group["lr"] = learning_rate * torch_group["factor"]
            if isinstance(optimizer, torch.optim.SGD) and self.settings.momentum:
                _start_momentum(optimizer)
            optimizer.step()
            optimizer.zero_grad()

    def _fused_adam_step(
        self, groups: tuple[str, ...], optimizers: Sequence[torch.optim.Optimizer], learning_rate: float
    ) -> None:
        sets = self._adam_sets.get(groups)
        if sets is None:
            sets = self._adam_sets[groups] = _adam_sets(optimizers)
        for each in sets:
            each.step(learning_rate)

    def state(self) -> dict[str, Tensor]:
        """The state of all optimizers as a dictionary from "group/parameter/quantity" to tensors."""
        return {
            f"{group}/{self._names[parameter]}/{quantity}": value
            for group, optimizer in self._optimizers.items()
            for parameter, quantities in optimizer.state.items()
            for quantity, value in quantities.items()
            if value is not None
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`. Entries of groups that are frozen in this stage are ignored."""
        self._adam_sets.clear()
        parameters = {name: parameter for parameter, name in self._names.items()}
        expected = self._quantities()
        loaded: dict[str, set[str]] = {}
        for key, value in state.items():
            group, _, rest = key.partition("/")
            if group not in self._optimizers:
                continue
            name, _, quantity = rest.rpartition("/")
            if name not in parameters or quantity not in expected:
                raise _misfit(f"{quoted(key)} is not part of it")
            optimizer, parameter = self._optimizers[group], parameters[name]
            shape = torch.Size() if quantity == STEP else parameter.shape
            if value.shape != shape or not value.is_floating_point():
                raise _misfit(f"{key} has the shape {list(value.shape)} or a number format that is wrong")
            # Kernels that are not fused count their steps on the CPU; all other state is on the device of the
            # parameter.
            on_device = quantity != STEP or optimizer.defaults.get("fused")
            if quantity != STEP:
                # The kernels expect the memory format of the parameter; checkpoints are contiguous.
                value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
            optimizer.state[parameter][quantity] = value.to(parameter.device) if on_device else value
            loaded.setdefault(f"{group}/{name}", set()).add(quantity)
        for place, quantities in loaded.items():
            if missing := expected - quantities:
                raise _misfit(f"{place}/{min(missing)} is missing")

    def _quantities(self) -> frozenset[str]:
        """What the optimizer stores for each parameter that it has updated."""
        unused = frozenset() if self.settings.momentum else {MOMENTUM}
        return QUANTITIES[self.settings.optimizer] - unused


def _misfit(reason: str) -> UserError:
    return UserError(
        f"The checkpoint does not fit the optimizer: {reason}; restore the settings that it was trained with."
    )


def _optimizer(groups: list[dict[str, Any]], settings: Settings) -> torch.optim.Optimizer:
    rate, momentum = settings.learning_rate, settings.momentum
    # Fused kernels read and write each parameter once. On a CPU they take a third of the time.
    if settings.optimizer == "adam":
        return torch.optim.Adam(groups, lr=rate, eps=settings.epsilon, fused=_fused(groups))
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=rate, eps=settings.epsilon, fused=_fused(groups))
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=momentum, fused=_fused(groups))
    return torch.optim.RMSprop(groups, lr=rate, eps=settings.epsilon, momentum=momentum)


def _is_fused_adam(optimizer: torch.optim.Optimizer) -> TypeGuard[torch.optim.Adam]:
    return isinstance(optimizer, torch.optim.Adam) and bool(optimizer.defaults.get("fused"))


@torch.no_grad()
def _start_adam(optimizer: torch.optim.Adam) -> None:
    """Allocates the state before the first step.

    Between the maps of the first step, it would keep their memory from being used again as a whole.
    """
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        optimizer.state[parameter] = {
            STEP: torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


class AdamSet:
    """Parameters with the same settings, of one or more groups, which the fused kernel updates in one call.

    A step is the same as that of `torch.optim.Adam`, bit for bit, whose hooks, checks and profiling take
    longer than the kernel itself for a layer of a few hundred units.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, factor: float, weight_decay: float) -> None:
        self.factor = factor
        defaults = optimizer.defaults
        self._kernel = partial(
            torch._fused_adamw_ if isinstance(optimizer, torch.optim.AdamW) else torch._fused_adam_,
            beta1=defaults["betas"][0],
            beta2=defaults["betas"][1],
            weight_decay=weight_decay,
            eps=defaults["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=None,
            found_inf=None,
        )
        self._parameters: list[nn.Parameter] = []
        self._averages: list[Tensor] = []
        self._squares: list[Tensor] = []
        self._steps: list[Tensor] = []

    def add(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        """Adds parameters with their state in an optimizer."""
        states = [optimizer.state[parameter] for parameter in parameters]
        self._parameters += parameters
        self._averages += [state["exp_avg"] for state in states]
        self._squares += [state["exp_avg_sq"] for state in states]
        self._steps += [state[STEP] for state in states]
        # Adding a tensor takes a third of the time of adding a number.
        self._one = torch.ones_like(self._steps[0])

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Updates the parameters that have a gradient, and frees the gradients."""
        parameters, gradients = self._parameters, [p.grad for p in self._parameters]
        averages, squares, steps = self._averages, self._squares, self._steps
        if any(gradient is None for gradient in gradients):
            present = [gradient is not None for gradient in gradients]
            parameters, gradients = list(compress(parameters, present)), list(compress(gradients, present))
            averages, squares, steps = (list(compress(each, present)) for each in (averages, squares, steps))
        for step in steps:
            step.add_(self._one)
        if parameters:
            rate = learning_rate * self.factor
            self._kernel(parameters, gradients, averages, squares, [], steps, lr=rate)
        for parameter in parameters:
            parameter.grad = None


def _adam_sets(optimizers: Sequence[torch.optim.Optimizer]) -> list[AdamSet]:
    """The parameters of several optimizers with the same defaults, by their settings."""
    sets: dict[tuple[float, float], AdamSet] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            settings = group["factor"], group["weight_decay"]
            sets.setdefault(settings, AdamSet(optimizer, *settings)).add(group["params"], optimizer)
    return list(sets.values())


def _start_momentum(optimizer: torch.optim.SGD) -> None:
    """Starts the momentum of parameters that get their first gradient later than others of their group.

    The fused kernel fails if only some parameters have a momentum. From zero, the first step is the same as
    without one.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    new = [p for p in parameters if optimizer.state[p].get("momentum_buffer") is None]
    if len(new) < len(parameters):
        for parameter in new:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _fused(groups: list[dict[str, Any]]) -> bool:
    parameters = [p for group in groups for p in group["params"]]
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)


def learning_rate(settings: Settings, progress: float) -> float:
    """The learning rate at `progress` in [0, 1), the completed share of a stage."""
    if settings.lr_schedule == "step":
        drops = (progress >= 2 / 3) + (progress >= 5 / 6)
        return settings.learning_rate * 0.1**drops
    if settings.lr_schedule == "linear":
        return settings.learning_rate * (1 - progress)
    if settings.lr_schedule == "cosine":
        return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    return settings.learning_rate
