"""Predictive coding against numbers by hand, its energy, and backpropagation."""

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.predictive_coding import PredictiveCoding
from hff.networks import AffineRow, Network, create_network
from hff.networks.tables import HALVING

CLASSES = 3
NETWORKS = {
    "mlp": Network("mlp", (6,), tuple(AffineRow("linear", width, activation="tanh") for width in (7, 5, 4))),
    "cnn": Network(
        "cnn",
        (2, 8, 8),
        (
            AffineRow("conv", 4, pool=HALVING, activation="gelu"),
            AffineRow("conv", 5, pool=HALVING, activation="gelu"),
        ),
    ),
}


def make(net: Network, classes: int = CLASSES, **options: Any) -> PredictiveCoding:
    method = create_method("predictive_coding", net, classes, **options)
    assert isinstance(method, PredictiveCoding)
    return method.double()


def batch_for(net: Network, size: int = 4) -> Batch:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(size, *net.in_shape, generator=draw, dtype=torch.float64)
    return Batch(x, torch.arange(size) % CLASSES, torch.arange(size), (0, 0, 0, 0))


def gradients(method: PredictiveCoding, batch: Batch) -> list[Tensor]:
    method.zero_grad(set_to_none=True)
    ((group, _),) = method.update(batch, method.stages(1)[0])
    assert group == "network"
    return [p.grad for p in method.parameters() if p.grad is not None]


def energy(method: PredictiveCoding, x: Tensor, hidden: list[Tensor], target: Tensor) -> Tensor:
    """The energy as in the papers, summed over samples and layers."""
    total = x.new_zeros(())
    *lower, last = method.blocks
    for block, below, activity in zip(lower, [x, *hidden[:-1]], hidden, strict=True):
        total = total + 0.5 * (activity - block(below)).square().sum()
    output = last(hidden[-1])
    if method.output == "cross_entropy":
        return total - (target * output.log_softmax(1)).sum()
    return total + 0.5 * (target - output).square().sum()


def settled(method: PredictiveCoding, batch: Batch, nudge: float) -> tuple[list[Tensor], Tensor]:
    """Activities after gradient descent with momentum on the energy, and the target of the output."""
    hidden: list[Tensor] = []
    h = batch.x
    for block in method.blocks:
        h = block(h).detach()
        hidden.append(h)
    output = hidden.pop()
    answer = output.softmax(1) if method.output == "cross_entropy" else output
    target = answer + nudge * (F.one_hot(batch.y, CLASSES) - answer)
    momenta = [torch.zeros_like(h) for h in hidden]
    for _ in range(method.inference_steps):
        leaves = [h.detach().requires_grad_() for h in hidden]
        derivatives = torch.autograd.grad(energy(method, batch.x, leaves, target), leaves)
        momenta = [
            method.inference_momentum * m + derivative
            for m, derivative in zip(momenta, derivatives, strict=True)
        ]
        hidden = [h - method.inference_rate * m for h, m in zip(hidden, momenta, strict=True)]
    return hidden, target


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("output", ["squared", "cross_entropy"])
@pytest.mark.parametrize("nudge", [1.0, 0.3, -0.3])
def test_activities_and_weights_follow_the_gradient_of_the_energy(
    name: str, output: str, nudge: float
) -> None:
    method = make(
        NETWORKS[name],
        output=output,
        nudge=nudge,
        inference_steps=5,
        inference_rate=0.2,
        inference_momentum=0.4,
    )
    batch = batch_for(NETWORKS[name])
    hidden, target = settled(method, batch, nudge)
    mean = energy(method, batch.x, hidden, target) / (len(batch.y) * nudge)
    expected = torch.autograd.grad(mean, list(method.parameters()))
    for ours, theirs in zip(gradients(method, batch), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_an_inference_step_by_hand() -> None:
    net = Network("tiny", (1,), (AffineRow("linear", 1, activation="identity"),))
    method = make(net, 2, inference_steps=1, inference_rate=0.1)
    with torch.no_grad():
        for parameter, value in zip(
            method.parameters(), ([[0.5]], [0.0], [[1.0], [0.5]], [0.0, 0.0]), strict=True
        ):
            parameter.copy_(torch.tensor(value))
    one = Batch(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]), torch.tensor([0]), (0, 0, 0, 0))
    # h = 0.5 predicts (0.5, 0.25), so the errors for label (1, 0) are (0.5, -0.25). h moves by a tenth of
    # 1 * 0.5 - 0.5 * 0.25 = 0.375 to 0.5375, where the errors are 0.0375 and (0.4625, -0.26875).
    first, first_bias, second, second_bias = gradients(method, one)
    assert (first.item(), first_bias.item()) == (pytest.approx(-0.0375), pytest.approx(-0.0375))
    assert second.flatten().tolist() == pytest.approx([-0.4625 * 0.5375, 0.26875 * 0.5375])
    assert second_bias.tolist() == pytest.approx([-0.4625, 0.26875])
    energies = [0.5 * 0.0375**2, 0.5 * (0.4625**2 + 0.26875**2)]
    assert list(method.diagnostics().values()) == pytest.approx(energies)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("output", ["squared", "cross_entropy"])
@pytest.mark.parametrize(("rate", "steps"), [(0.2, 200), (1.0, 3)])
def test_with_fixed_predictions_the_update_equals_backpropagation(
    name: str, output: str, rate: float, steps: int
) -> None:
    """After many small steps, and after one full step for each hidden layer."""
    method = make(
        NETWORKS[name],
        variant="fixed_prediction",
        output=output,
        inference_rate=rate,
        inference_steps=steps,
    )
    batch = batch_for(NETWORKS[name])
    scores = method(batch.x)
    if output == "cross_entropy":
        loss = F.cross_entropy(scores, batch.y)
    else:
        loss = 0.5 * (scores - F.one_hot(batch.y, CLASSES)).square().sum() / len(batch.y)
    expected = torch.autograd.grad(loss, list(method.parameters()))
    for ours, theirs in zip(gradients(method, batch), expected, strict=True):
        assert float((ours - theirs).norm()) < 1e-6 * float(theirs.norm())


def test_standard_predictive_coding_is_not_backpropagation() -> None:
    net = NETWORKS["mlp"]
    settings = {"inference_rate": 0.2, "inference_steps": 200}
    batch = batch_for(net)
    standard = gradients(make(net, **settings), batch)
    fixed = gradients(make(net, variant="fixed_prediction", **settings), batch)
    assert float((standard[0] - fixed[0]).norm()) > 0.05 * float(fixed[0].norm())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_energy_decreases_with_every_inference_step(name: str) -> None:
    method = make(NETWORKS[name], inference_rate=0.1)
    batch = batch_for(NETWORKS[name])
    with torch.no_grad():
        start = float(energy(method, batch.x, *settled(make_steps(method, 0), batch, 1.0)))
    found = [start / len(batch.y)]
    for steps in range(1, 12):
        gradients(make_steps(method, steps), batch)
        found.append(sum(method.diagnostics().values()))
    assert all(after < before for before, after in pairwise(found))


def make_steps(method: PredictiveCoding, steps: int) -> PredictiveCoding:
    method.inference_steps = steps
    return method


@pytest.mark.parametrize("variant", ["standard", "fixed_prediction"])
def test_the_error_moves_down_one_block_per_step(variant: str) -> None:
    net = NETWORKS["mlp"]
    for steps in range(1, 5):
        method = make(net, variant=variant, inference_steps=steps)
        gradients(method, batch_for(net))
        reached = [energy > 0 for energy in method.diagnostics().values()]
        assert reached == [layer >= 3 - steps for layer in range(4)]


def test_incremental_learns_after_every_inference_step() -> None:
    """Two steps written out, with an optimizer that subtracts a tenth of the gradient."""
    net = NETWORKS["mlp"]
    method = make(net, variant="incremental", inference_steps=2, inference_rate=0.2)
    twin = make(net, inference_steps=1, inference_rate=0.2)
    batch = batch_for(net)
    hidden, target = settled(twin, batch, 1.0)
    groups = 0
    for group, _ in method.update(batch, method.stages(1)[0]):
        groups += 1
        assert group == "network"
        if groups == 2:
            leaves = [h.detach().requires_grad_() for h in hidden]
            derivatives = torch.autograd.grad(energy(twin, batch.x, leaves, target), leaves)
            hidden = [h - 0.2 * derivative for h, derivative in zip(hidden, derivatives, strict=True)]
        mean = energy(twin, batch.x, hidden, target) / len(batch.y)
        expected = torch.autograd.grad(mean, list(twin.parameters()))
        with torch.no_grad():
            for parameter, other, derivative in zip(
                method.parameters(), twin.parameters(), expected, strict=True
            ):
                assert parameter.grad is not None
                assert torch.allclose(parameter.grad, derivative, atol=1e-12)
                parameter -= 0.1 * parameter.grad
                other -= 0.1 * derivative
                parameter.grad = None
    assert groups == 2


def test_incremental_takes_one_optimizer_step_per_inference_step() -> None:
    net = NETWORKS["mlp"]
    for steps in (1, 5):
        method = make(net, variant="incremental", inference_steps=steps)
        assert len(list(method.update(batch_for(net), method.stages(1)[0]))) == steps


def test_centered_nudging_is_the_mean_of_both_signs() -> None:
    net = NETWORKS["mlp"]
    batch = batch_for(net)
    centered, pushed, pulled = (
        gradients(make(net, **options), batch)
        for options in ({"nudge": 0.5, "centered": True}, {"nudge": -0.5}, {"nudge": 0.5})
    )
    for ours, minus, plus in zip(centered, pushed, pulled, strict=True):
        assert torch.allclose(ours, (minus + plus) / 2, atol=1e-12)
    assert not torch.allclose(pushed[0], pulled[0], rtol=0.01)


def test_scores_and_loss_are_those_of_the_forward_pass() -> None:
    net = NETWORKS["cnn"]
    batch = batch_for(net)
    for output in ("squared", "cross_entropy"):
        method = make(net, output=output)
        h = batch.x
        for block in method.blocks:
            h = block(h).detach()
        assert torch.equal(method(batch.x), h)
        ((_, loss),) = method.update(batch, method.stages(1)[0])
        distance = 0.5 * (h - F.one_hot(batch.y, CLASSES)).square().sum() / len(batch.y)
        assert loss == pytest.approx(float(distance if output == "squared" else F.cross_entropy(h, batch.y)))
    assert method.passes == 1


@pytest.mark.parametrize("options", [{"norm": "batch"}, {"norm": "batch_plain"}, {"dropout": 0.1}])
def test_batch_norm_and_dropout_are_unsupported(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="does not support batch norm and dropout"):
        create_method(
            "predictive_coding", create_network("mlp", (6,), CLASSES, widths=(5,), **options), CLASSES
        )


def test_activations_without_a_derivative_are_unsupported() -> None:
    with pytest.raises(UserError, match="another one than 'step'"):
        create_method(
            "predictive_coding", create_network("mlp", (6,), CLASSES, widths=(5,), activation="step"), CLASSES
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference_steps": 0}, "inference_steps must be at least 1"),
        ({"inference_rate": 0.0}, "inference_rate must be above 0"),
        ({"inference_momentum": 1.0}, "inference_momentum must be at least 0 and below 1"),
        ({"nudge": 0.0}, "nudge must not be 0"),
        ({"variant": "incremental", "centered": True}, "use standard"),
    ],
)
def test_invalid_options_raise_a_user_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(NETWORKS["mlp"], **options)
