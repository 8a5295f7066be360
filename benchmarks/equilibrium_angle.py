"""Angle between equilibrium propagation's update and the gradient: python benchmarks/equilibrium_angle.py

This measures a narrow copy of the published convolutional network on images of CIFAR-10. The table
`results/equilibrium_angle.csv` has a row for each state function, kind of nudging and strength of the nudge,
before and after some training. Each row contains these angles:

- between the update and the gradient of the loss at equilibrium, over all weights and for each layer. The
  gradient is computed by backpropagation through the whole free relaxation.
- between the update and the gradient of the feed-forward twin, which has no connections down. It has the same
  weights but is a different network.

The update is computed in single precision, as in training, and the gradients in double precision. Where a
state is clipped, the gradient is zero, but a nudge can still move the state. With a clip function, an angle
is therefore not only due to an error of the update.
"""

import argparse
import copy
import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from collect import RESULTS
from torch import Tensor, nn

from hff.batch import Batch
from hff.data import Batches, DataSet, load_data
from hff.methods import create_method
from hff.methods.equilibrium_prop import EquilibriumProp
from hff.networks import create_network
from hff.training import Settings
from hff.training.optimizers import Optimizers
from hff.training.run import environment

NUDGES = (0.05, 0.2, 0.5, 1.0)
STATE_FUNCTIONS = ("sigmoid", "half_clip")
NUDGING = ("one_sided", "symmetric")
IMAGES = 16
OPTIONS: dict[str, Any] = {
    "weight_gain": 0.5,
    "input_scale": 1 / 3,
    "free_steps": 60,
    "nudged_steps": 30,
}
TRAINING: dict[str, Any] = {"nudging": "symmetric", "nudge": 0.25, "free_steps": 30, "nudged_steps": 15}
"""Options that differ during the training before the second measurement."""

Gradients = list[Tensor]


def build(data: DataSet, state_function: str, width_factor: float, seed: int) -> EquilibriumProp:
    table = create_network("equilibrium_cnn", data.in_shape, len(data.classes), width_factor=width_factor)
    method = create_method(
        "equilibrium_prop", table, len(data.classes), seed=seed, state_function=state_function, **OPTIONS
    )
    assert isinstance(method, EquilibriumProp)
    return method


def train(method: EquilibriumProp, data: DataSet, steps: int, seed: int) -> None:
    """Runs the given number of Adam steps on batches of 32."""
    ours = {key: getattr(method, key) for key in TRAINING}
    vars(method).update(TRAINING)
    stage = method.stages(1)[0]
    optimizers = Optimizers(method, stage, Settings(learning_rate=1e-3))
    batches = Batches(data.train, data.preprocessing, 32, (seed, 0), data.augmentation)
    for step, batch in enumerate(batches.epoch(0)):
        if step == steps:
            break
        for group, _ in method.update(batch, stage):
            optimizers.step(group, 1e-3)
    vars(method).update(ours)


def estimate(method: EquilibriumProp, batch: Batch) -> Gradients:
    """Gradients of the update, one per parameter."""
    method.zero_grad(set_to_none=True)
    for _ in method.update(batch, method.stages(1)[0]):
        pass
    return [p.grad.double() for p in method.parameters() if p.grad is not None]


def through_relaxation(method: EquilibriumProp, batch: Batch) -> Gradients:
    """Gradients by backpropagation through all steps of the free relaxation, in double precision."""
    twin, x = _double(method, batch)
    states = [
        x.new_zeros(len(x), *twin.block(layer).out_shape, requires_grad=True) for layer in range(twin.depth)
    ]
    for _ in range(twin.free_steps):
        below = [x, *states[:-1]]
        phi = sum((s * block(h)).sum() for s, block, h in zip(states, twin.blocks, below, strict=True))
        drives = torch.autograd.grad(phi, states, create_graph=True)
        states = [twin.sigma(drive) for drive in drives]
    return _of_loss(twin, states[-1], batch.y)


def of_feed_forward_twin(method: EquilibriumProp, batch: Batch) -> Gradients:
    """Gradients by backpropagation where each layer only gets input from below, in double precision."""
    twin, h = _double(method, batch)
    for block in twin.blocks:
        h = twin.sigma(block(h))
    return _of_loss(twin, h, batch.y)


def _double(method: EquilibriumProp, batch: Batch) -> tuple[EquilibriumProp, Tensor]:
    return copy.deepcopy(method).double(), batch.x.double() * method.input_scale + method.input_offset


def _of_loss(method: nn.Module, output: Tensor, y: Tensor) -> Gradients:
    loss = 0.5 * (output - F.one_hot(y, output.shape[1])).square().sum(1).mean()
    return list(torch.autograd.grad(loss, list(method.parameters())))


def degrees(ours: Gradients, theirs: Gradients) -> float:
    """Angle between two lists of gradients, each taken as one vector."""
    a, b = (torch.cat([each.flatten() for each in gradients]) for gradients in (ours, theirs))
    cosine = float(a @ b / (a.norm() * b.norm()))
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def rows(method: EquilibriumProp, batch: Batch, shared: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each kind of nudging and each strength."""
    true, feed_forward = through_relaxation(method, batch), of_feed_forward_twin(method, batch)
    found = []
    for nudging in NUDGING:
        for nudge in NUDGES:
            vars(method).update(nudging=nudging, nudge=nudge)
            ours = estimate(method, batch)
            layers = [
                degrees(ours[first : first + 2], true[first : first + 2]) for first in range(0, len(ours), 2)
            ]
            found.append(
                {
                    **shared,
                    "nudging": nudging,
                    "nudge": nudge,
                    "degrees_to_gradient": f"{degrees(ours, true):.2f}",
                    "degrees_of_layers": " ".join(f"{layer:.2f}" for layer in layers),
                    "degrees_to_feed_forward": f"{degrees(ours, feed_forward):.2f}",
                    "gradient_to_feed_forward": f"{degrees(true, feed_forward):.2f}",
                    "free_change": f"{method.diagnostics()['free_change']:.1e}",
                }
            )
    return found


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, images and order (0)")
    parser.add_argument(
        "--width-factor", type=float, default=1 / 16, help="factor for the published widths (1/16)"
    )
    parser.add_argument(
        "--training-steps", type=int, default=40, help="training steps between the two measurements (40)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "equilibrium_angle.csv", help="table to write")
    given = parser.parse_args(argv)
    data = load_data("cifar10", augment="none", validation=IMAGES, seed=given.seed)
    assert data.validation is not None
    (batch,) = Batches.in_order(data.validation, data.preprocessing, IMAGES).epoch(0)
    machine = environment()
    found: list[dict[str, Any]] = []
    for state_function in STATE_FUNCTIONS:
        method = build(data, state_function, given.width_factor, given.seed)
        widths = "-".join(str(method.block(layer).row.width) for layer in range(len(method.blocks)))
        for trained in (0, given.training_steps):
            train(method, data, trained, given.seed)
            shared = {
                "data": data.name,
                "network": f"equilibrium_cnn {widths}",
                "seed": given.seed,
                "images": IMAGES,
                "free_steps": method.free_steps,
                "nudged_steps": method.nudged_steps,
                "state_function": state_function,
                "training_steps": trained,
            }
            found += rows(method, batch, shared)
    how = {key: machine[key] for key in ("command", "hff", "torch", "python", "processor", "threads")}
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*found[0], *how, "date"], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **how, "date": machine["started"][:10]} for row in found)


if __name__ == "__main__":
    main(sys.argv[1:])
