"""Equilibrium propagation: weights learn from how a nudge of the output changes the network's equilibrium."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.method import Form, Method, MethodInfo, ParameterSet, Stage, register
from hff.networks import Network
from hff.randomness import generator

States = list[Tensor]
"""The state of each relaxing layer [B, *out_shape], from the first to the last."""

STATE_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda u: torch.sigmoid(4 * u - 2),
    "clip": lambda u: u.clamp(0, 1),
    "half_clip": lambda u: (u / 2).clamp(0, 1),
}


@register
class EquilibriumProp(Method):
    """Adjacent layers drive each other through the same weights; learning compares two equilibria.

    A last row of C units is the output; otherwise one is added. The state function replaces the network's
    activations. With Phi = sum over l of <s_l, pool(W_l s_{l-1} + b_l)>, the equilibrium of each layer is
    s_l = sigma(dPhi / ds_l).

    Args:
        loss: squared error of the output, which relaxes like every layer; or cross-entropy of a softmax
            read-out, which does not relax.
        nudging: compare the equilibria under both signs of the nudge (symmetric); with and without the nudge
            (one_sided); or the latter with a random sign for each batch (random_sign).
        nudge: strength of the nudge (beta in the paper).
        free_steps: relaxation steps without the nudge; a prediction uses the same number.
        nudged_steps: relaxation steps with the nudge, from the equilibrium without it.
        state_function: sigmoid(4u - 2); u clipped to [0, 1] (clip); or u/2 clipped to [0, 1] (half_clip).
        updates: update all layers at once, or one after the other from the first (asynchronous).
        weight_gain: factor of the initial weights; below 1 prevents saturated units.
        layer_rates: factor of the learning rate for each layer and the output; if empty, 1 for all.
        input_scale: factor of the input; 0.3081 reverts MNIST's standardization.
        input_offset: number added to the scaled input; 0.1307 reverts MNIST's standardization.
    """

    name = "equilibrium_prop"
    info = MethodInfo(
        title="Equilibrium propagation",
        paper="Scellier and Bengio 2017, Equilibrium Propagation (arXiv 1602.05179); Laborieux et al. 2021, "
        "Scaling Equilibrium Propagation to Deep ConvNets (arXiv 2006.03824)",
        passes="30",
        gradient_reach="all",
        top_signal=True,
        signal="feedback",
        layer_local=False,
        autocast=False,
        form=Form({"widths": (512,)}, raw_inputs=("input_scale", "input_offset")),
    )
    free_change: Tensor

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        loss: Literal["squared", "cross_entropy"] = "squared",
        nudging: Literal["symmetric", "one_sided", "random_sign"] = "symmetric",
        nudge: float = 0.1,
        free_steps: int = 30,
        nudged_steps: int = 10,
        state_function: Literal["sigmoid", "clip", "half_clip"] = "sigmoid",
        updates: Literal["simultaneous", "asynchronous"] = "simultaneous",
        weight_gain: float = 1.0,
        layer_rates: tuple[float, ...] = (),
        input_scale: float = 1.0,
        input_offset: float = 0.0,
    ) -> None:
        for option, value in {"nudge": nudge, "weight_gain": weight_gain, "input_scale": input_scale}.items():
            require(value > 0, f"{option} must be above 0, not {value:g}.")
        for option, steps in {"free_steps": free_steps, "nudged_steps": nudged_steps}.items():
            require(steps >= 1, f"{option} must be at least 1, not {steps}.")
        complete = network.with_output(classes)
        rows = tuple(replace(row, activation="identity") for row in complete.affine_rows)
        if layer_rates and len(layer_rates) != len(rows):
            raise UserError(
                f"layer_rates has {len(layer_rates)} numbers, but the network has {len(rows)} layers, "
                f"including the output: give one for each layer or none."
            )
        relaxing = len(rows) - (loss == "cross_entropy")
        require(
            relaxing >= 1, "With cross_entropy the output does not relax; use a network with hidden layers."
        )
        super().__init__(replace(complete, rows=rows), classes)
        self.loss = loss
        self.nudging = nudging
        self.nudge = nudge
        self.free_steps = free_steps
        self.nudged_steps = nudged_steps
        self.sigma = STATE_FUNCTIONS[state_function]
        self.asynchronous = updates == "asynchronous"
        self.layer_rates = layer_rates or (1.0,) * len(rows)
        self.input_scale = input_scale
        self.input_offset = input_offset
        self.depth = relaxing
        for layer in range(len(rows)):
            self.affine_block(layer).affine.weight.data.mul_(weight_gain)
        self.register_buffer("free_change", torch.zeros(()))

    @classmethod
    def unsupported_reason(cls, network: Network, classes: int) -> str | None:
        if any(row.norm != "none" or row.dropout for row in network.affine_rows):
            return (
                f"{cls.info.title} does not support norms and dropout, but network {network.name!r} has "
                f"them; choose another network."
            )
        return super().unsupported_reason(network, classes)

    @property
    def passes(self) -> int:
        return self.free_steps

    def diagnostics(self) -> dict[str, float]:
        """The root mean square change of the states in the last free step of the last batch."""
        return {"free_change": float(self.free_change)}

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        return {
            "network": [
                ParameterSet(list(block.parameters()), rate)
                for block, rate in zip(self.blocks, self.layer_rates, strict=True)
            ]
        }

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        x = self.stem(batch.x)
        with torch.no_grad():
            drive = self.blocks[0](x)
            almost = self.relax(drive, self._zeros(drive), self.free_steps - 1)
            free = self.relax(drive, almost, 1)
            self.free_change.copy_(_distance(free, almost))
            first, second = self._nudges(batch)
            at_first = self.relax(drive, free, self.nudged_steps, first, batch.y)
            at_second = self.relax(drive, free, self.nudged_steps, second, batch.y) if second else free
            loss = self.losses(free[-1], batch.y).mean()
        self.estimate(x, batch.y, (first, at_first), (second, at_second)).backward()
        yield "network", loss

    def _nudges(self, batch: Batch) -> tuple[float, float]:
        """The two strengths of the nudge whose equilibria are compared."""
        if self.nudging == "symmetric":
            return self.nudge, -self.nudge
        if self.nudging == "one_sided":
            return self.nudge, 0.0
        # One sign for the whole batch, so that parts of a batch use the same sign.
        sign = 1 if torch.rand((), generator=generator(*batch.key, "sign of the nudge")) < 0.5 else -1
        return sign * self.nudge, 0.0

    def relax(
        self, drive: Tensor, states: States, steps: int, nudge: float = 0.0, y: Tensor | None = None
    ) -> States:
        """Runs the given number of relaxation steps.

        drive [B, *out_shape]: output of the first block, the same in all steps, because the input is fixed.
        """
        for _ in range(steps):
            pull = 0.0 if y is None or not nudge else -nudge * self.gradients(states[-1], y)
            states = (
                self._sweep(drive, states, pull) if self.asynchronous else self._step(drive, states, pull)
            )
        return states

    def _step(self, drive: Tensor, states: States, pull: Tensor | float) -> States:
        drives = [drive]
        for layer in range(1, self.depth):
            up, down = self.exchange(layer, states[layer - 1], states[layer])
            drives[-1] = drives[-1] + down
            drives.append(up)
        drives[-1] = drives[-1] + pull
        return [self.sigma(each) for each in drives]

    def _sweep(self, drive: Tensor, states: States, pull: Tensor | float) -> States:
        states = list(states)
        for layer in range(self.depth):
            up = drive if layer == 0 else self.blocks[layer](states[layer - 1])
            top = layer == self.depth - 1
            down = pull if top else self.exchange(layer + 1, states[layer], states[layer + 1])[1]
            states[layer] = self.sigma(up + down)
        return states

    def exchange(self, layer: int, below: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
        """The drive of the layer above [B, *out_shape] and of the layer below [B, *in_shape].

        These are the derivatives of <above, block(below)>.
        """
        block = self.affine_block(layer)
        if block.row.kind == "linear":
            affine = block.affine
            return affine(below.flatten(1)), (above @ affine.weight).view_as(below)
        with torch.enable_grad():
            leaf = below.detach().requires_grad_()
            up = block(leaf)
        (down,) = torch.autograd.grad(up, leaf, above)
        return up.detach(), down

    def estimate(
        self, x: Tensor, y: Tensor, first: tuple[float, States], second: tuple[float, States]
    ) -> Tensor:
        """-(Phi_1 - Phi_2) / (beta_1 - beta_2), whose gradient estimates the gradient of the loss.

        Each Phi is a mean over samples, at its own states, minus its own nudge times the loss.
        """
        (nudge, at_nudge), (other, at_other) = first, second
        samples, gap = len(y), nudge - other
        # Both equilibria have the same input, so the first layer needs one product with their difference.
        phi = _inner(at_nudge[0] - at_other[0], self.blocks[0](x))
        for layer in range(1, self.depth):
            block = self.blocks[layer]
            phi = phi + _inner(at_nudge[layer], block(at_nudge[layer - 1]))
            phi = phi - _inner(at_other[layer], block(at_other[layer - 1]))
        estimate = -phi / (gap * samples)
        if self.loss == "cross_entropy":
            # The read-out learns by this term only, which weights each state by its nudge.
            for strength, states in ((nudge, at_nudge), (-other, at_other)):
                if strength:
                    estimate = estimate + strength / gap * self.losses(states[-1], y).mean()
        return estimate

    def losses(self, top: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample [B], from the last relaxing layer [B, ...]."""
        if self.loss == "cross_entropy":
            return F.cross_entropy(self.blocks[-1](top), y, reduction="none")
        return 0.5 * (top - self._target(y, top)).square().sum(1)

    def gradients(self, top: Tensor, y: Tensor) -> Tensor:
        """The gradient of each sample's loss with respect to the last relaxing layer [B, ...]."""
        if self.loss == "squared":
            return top - self._target(y, top)
        output = self.affine_block(len(self.blocks) - 1)
        probabilities = torch.softmax(output(top), 1)
        return ((probabilities - self._target(y, probabilities)) @ output.affine.weight).view_as(top)

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        """The drive of the output at equilibrium [B, C], which ranks classes like the states do."""
        with torch.no_grad():
            drive = self.blocks[0](self.stem(x))
            states = self.relax(drive, self._zeros(drive), self.free_steps)
            last = len(self.blocks) - 1
            scores = self.blocks[last](states[last - 1]) if last else drive
        yield last, scores

    def stem(self, x: Tensor) -> Tensor:
        return x * self.input_scale + self.input_offset

    def _zeros(self, drive: Tensor) -> States:
        return [
            drive.new_zeros(len(drive), *self.affine_block(layer).out_shape) for layer in range(self.depth)
        ]

    def _target(self, y: Tensor, like: Tensor) -> Tensor:
        return F.one_hot(y, self.classes).to(like.dtype)


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """The inner product, summed over samples."""
    return (a * b).sum()


def _distance(states: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """The root mean square difference over all units of all samples."""
    squares = torch.stack([(a - b).square().sum() for a, b in zip(states, others, strict=True)])
    return (squares.sum() / sum(a.numel() for a in states)).sqrt()
