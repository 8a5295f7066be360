"""Equilibrium propagation against numbers by hand and against the gradient through its relaxation."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.equilibrium_prop import EquilibriumProp
from hff.networks import AffineRow, Network, create_network
from hff.networks.tables import HALVING

CLASSES = 3
NETWORKS = {
    "mlp": Network("mlp", (6,), (AffineRow("linear", 5), AffineRow("linear", 4))),
    "cnn": Network("cnn", (2, 8, 8), (AffineRow("conv", 4, pool=HALVING), AffineRow("conv", 5, padding=0))),
}


def make(net: Network, classes: int = CLASSES, **options: Any) -> EquilibriumProp:
    method = create_method("equilibrium_prop", net, classes, **options)
    assert isinstance(method, EquilibriumProp)
    return method.double()


def batch_for(net: Network, size: int = 4, step: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(size, *net.in_shape, generator=draw, dtype=torch.float64)
    return Batch(x, torch.arange(size) % CLASSES, torch.arange(size), (0, 0, 0, step))


def gradients(method: EquilibriumProp, batch: Batch) -> Tensor:
    method.zero_grad(set_to_none=True)
    ((group, _),) = method.update(batch, method.stages(1)[0])
    assert group == "network"
    return torch.cat([p.grad.flatten() for p in method.parameters() if p.grad is not None])


def angle(a: Tensor, b: Tensor) -> float:
    return math.degrees(math.acos(min(1.0, float(F.cosine_similarity(a, b, dim=0)))))


def phi(method: EquilibriumProp, x: Tensor, states: list[Tensor]) -> Tensor:
    """Phi as in the papers, from the parameters."""
    total = x.new_zeros(())
    for layer, state in enumerate(states):
        row, affine = method.block(layer).row, method.block(layer).affine
        below = states[layer - 1] if layer else x
        if row.kind == "linear":
            given = below.flatten(1) @ affine.weight.T + affine.bias
        else:
            given = F.conv2d(below, affine.weight, affine.bias, padding=row.padding)
            given = F.max_pool2d(given, 2) if row.pool else given
        total = total + (state * given).sum()
    return total


def unrolled(method: EquilibriumProp, batch: Batch, steps: int) -> list[Tensor]:
    """The relaxation from zero with a graph through all its steps."""
    states = [
        torch.zeros(len(batch.y), *method.block(layer).out_shape, dtype=torch.float64, requires_grad=True)
        for layer in range(method.depth)
    ]
    for _ in range(steps):
        drives = torch.autograd.grad(phi(method, batch.x, states), states, create_graph=True)
        states = [method.sigma(drive) for drive in drives]
    return states


def true_gradient(method: EquilibriumProp, batch: Batch, steps: int = 80) -> Tensor:
    """The gradient of the mean loss at equilibrium, by backpropagation through the whole relaxation."""
    top = unrolled(method, batch, steps)[-1]
    if method.loss == "squared":
        loss = 0.5 * (top - F.one_hot(batch.y, CLASSES)).square().sum() / len(batch.y)
    else:
        output = method.block(len(method.blocks) - 1).affine
        loss = F.cross_entropy(top.flatten(1) @ output.weight.T + output.bias, batch.y)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(method.parameters()))])


def by_hand(**options: Any) -> EquilibriumProp:
    """One hidden unit and two output units in the linear range of clip."""
    net = Network("tiny", (1,), (AffineRow("linear", 1),))
    method = make(net, 2, state_function="clip", nudge=0.25, free_steps=100, nudged_steps=100, **options)
    with torch.no_grad():
        for parameter, value in zip(
            method.parameters(), ([[0.3]], [0.0], [[0.4], [0.2]], [0.0, 0.0]), strict=True
        ):
            parameter.copy_(torch.tensor(value))
    return method


ONE = Batch(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]), torch.tensor([0]), (0, 0, 0, 0))
# Without a nudge: h = 0.3 + 0.2 h, since 0.4^2 + 0.2^2 = 0.2.
FREE_HIDDEN, FREE_OUTPUT = 0.375, (0.15, 0.075)
# With the nudge, the output is (W h + 0.25 y) / 1.25, so h = 0.3 + 0.8 (0.2 h + 0.25 * 0.4).
NUDGED_HIDDEN = 0.38 / 0.84
NUDGED_OUTPUT = (0.8 * (0.4 * NUDGED_HIDDEN + 0.25), 0.8 * 0.2 * NUDGED_HIDDEN)


def test_equilibrium_and_update_by_hand() -> None:
    method = by_hand(nudging="one_sided")
    drive = method.blocks[0](ONE.x)
    free = method.relax(drive, method._zeros(drive), 100)
    assert [s.flatten().tolist() for s in free] == [[pytest.approx(FREE_HIDDEN)], pytest.approx(FREE_OUTPUT)]
    ((_, loss),) = method.update(ONE, method.stages(1)[0])
    assert float(loss) == pytest.approx(0.5 * (0.85**2 + 0.075**2))
    first, first_bias, second, second_bias = (p.grad for p in method.parameters() if p.grad is not None)
    hidden = -(NUDGED_HIDDEN - FREE_HIDDEN) / 0.25
    assert (first.item(), first_bias.item()) == (pytest.approx(hidden), pytest.approx(hidden))
    pairs = list(zip(NUDGED_OUTPUT, FREE_OUTPUT, strict=True))
    products = [-(nudged * NUDGED_HIDDEN - free * FREE_HIDDEN) / 0.25 for nudged, free in pairs]
    assert second.flatten().tolist() == pytest.approx(products)
    assert second_bias.tolist() == pytest.approx([-(nudged - free) / 0.25 for nudged, free in pairs])


def test_scores_are_the_drive_of_the_output_at_equilibrium() -> None:
    assert by_hand()(ONE.x).flatten().tolist() == pytest.approx(FREE_OUTPUT)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("updates", ["simultaneous", "asynchronous"])
@pytest.mark.parametrize("state_function", ["sigmoid", "clip", "half_clip"])
def test_relaxation_ends_at_a_fixed_point(name: str, updates: str, state_function: str) -> None:
    method = make(NETWORKS[name], weight_gain=0.5, updates=updates, state_function=state_function)
    batch = batch_for(NETWORKS[name])
    drive = method.blocks[0](batch.x)
    with torch.no_grad():
        equilibrium = method.relax(drive, method._zeros(drive), 200)
    leaves = [state.requires_grad_() for state in equilibrium]
    drives = torch.autograd.grad(phi(method, batch.x, leaves), leaves)
    sigma = {
        "sigmoid": lambda u: 1 / (1 + torch.exp(2 - 4 * u)),
        "clip": lambda u: u.clamp(0, 1),
        "half_clip": lambda u: (u / 2).clamp(0, 1),
    }[state_function]
    for state, driven in zip(equilibrium, drives, strict=True):
        assert torch.allclose(state, sigma(driven), atol=1e-12)
        assert ((state > 0) & (state < 1)).any(), "all units are saturated"


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize(("nudging", "order"), [("one_sided", 1), ("random_sign", 1), ("symmetric", 2)])
def test_the_update_converges_to_the_gradient_for_small_nudges(
    name: str, loss: str, nudging: str, order: int
) -> None:
    """The error of the estimate decreases in proportion to the nudge or to its square."""
    net = NETWORKS[name]
    method = make(net, loss=loss, nudging=nudging, weight_gain=0.5, free_steps=100, nudged_steps=100)
    batch = batch_for(net)
    true = true_gradient(method, batch)
    errors = []
    for nudge in (0.04, 0.02):
        method.nudge = nudge
        errors.append(float((gradients(method, batch) - true).norm() / true.norm()))
    assert errors[1] < 0.06
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.1)


def test_updates_of_pooled_convolutions_are_close_to_the_gradient_at_the_default_nudge() -> None:
    net = create_network("cnn", (3, 8, 8), CLASSES, channels=(6, 8))
    method = make(net, weight_gain=0.5, free_steps=60, nudged_steps=30)
    batch = batch_for(net)
    true = true_gradient(method, batch)
    assert angle(gradients(method, batch), true) < 0.5
    method.nudging = "one_sided"
    assert 0.5 < angle(gradients(method, batch), true) < 30


def test_the_random_sign_depends_on_the_key_of_the_batch() -> None:
    net = NETWORKS["mlp"]
    method = make(net, nudging="random_sign")
    signs = [method._nudges(batch_for(net, step=step))[0] > 0 for step in range(20)]
    assert 3 < sum(signs) < 17
    assert signs == [method._nudges(batch_for(net, step=step))[0] > 0 for step in range(20)]
    assert method._nudges(batch_for(net, size=2, step=3)) == method._nudges(batch_for(net, size=4, step=3))


def test_layers_that_inhibit_each_other_need_asynchronous_updates() -> None:
    net = Network("tiny", (1,), (AffineRow("linear", 1),))
    changes = {}
    for updates in ("simultaneous", "asynchronous"):
        method = make(net, 2, state_function="clip", updates=updates)
        with torch.no_grad():
            for parameter, value in zip(method.parameters(), (1.0, 0.0, -3.0, 1.0), strict=True):
                parameter.fill_(value)
        gradients(method, ONE)
        changes[updates] = method.diagnostics()["free_change"]
    assert changes == {"simultaneous": 1.0, "asynchronous": 0.0}


def test_more_steps_come_closer_to_equilibrium() -> None:
    net = NETWORKS["cnn"]
    changes = []
    for steps in (2, 8, 32):
        method = make(net, free_steps=steps)
        gradients(method, batch_for(net))
        changes.append(method.diagnostics()["free_change"])
    assert changes[0] > 10 * changes[1] > 100 * changes[2]
    assert method.passes == 32


def test_the_input_is_scaled_and_shifted() -> None:
    net = NETWORKS["mlp"]
    scaled, plain = make(net, input_scale=0.3, input_offset=0.1), make(net)
    batch = batch_for(net)
    assert torch.equal(scaled(batch.x), plain(batch.x * 0.3 + 0.1))
    again = Batch(batch.x * 0.3 + 0.1, batch.y, batch.index, batch.key)
    assert torch.equal(gradients(scaled, batch), gradients(plain, again))


def test_weight_gain_and_layer_rates() -> None:
    net = NETWORKS["mlp"]
    half, whole = make(net, weight_gain=0.5, layer_rates=(1, 0.5, 0.25)), make(net)
    for ours, theirs in zip(half.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, 0.5 * theirs if ours.dim() > 1 else theirs)
    (sets,) = half.parameter_groups(half.stages(1)[0]).values()
    assert [each.learning_rate for each in sets] == [1, 0.5, 0.25]
    assert [[tuple(p.shape) for p in each.parameters] for each in sets] == [
        [(5, 6), (5,)],
        [(4, 5), (4,)],
        [(3, 4), (3,)],
    ]


@pytest.mark.parametrize("options", [{"norm": "batch"}, {"dropout": 0.1}])
def test_norms_and_dropout_are_unsupported(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="does not support norms and dropout"):
        create_method(
            "equilibrium_prop", create_network("mlp", (6,), CLASSES, widths=(5,), **options), CLASSES
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nudge": 0.0}, "nudge must be above 0"),
        ({"weight_gain": -1.0}, "weight_gain must be above 0"),
        ({"free_steps": 0}, "free_steps must be at least 1"),
        ({"layer_rates": (1.0,)}, "layer_rates has 1 numbers, but the network has 3 layers"),
    ],
)
def test_invalid_options_raise_a_user_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(NETWORKS["mlp"], **options)


def test_cross_entropy_needs_a_hidden_layer() -> None:
    net = Network("output alone", (6,), (AffineRow("linear", CLASSES),))
    with pytest.raises(UserError, match="use a network with hidden layers"):
        make(net, loss="cross_entropy")
    assert make(net)(batch_for(net).x).shape == (4, CLASSES)
