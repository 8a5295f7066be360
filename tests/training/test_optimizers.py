"""Optimizers of each group: learning rates, weight decay, clipping, raw updates."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import Method, MethodInfo, ParameterSet, Stage, create_method
from hff.networks import create_network
from hff.training import Settings, Trainer
from hff.training.optimizers import Optimizers


class TwoGroups(Method):
    """A method whose first group has no parameters and whose second group has two sets of parameters."""

    name = "two_groups"
    info = MethodInfo("TwoGroups", "none", "1", needs_negatives=False, gradient_reach=0)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        second = self.block(1).affine
        return {
            "block0": [],
            "block1": [ParameterSet([second.weight], 10.0), ParameterSet([second.bias], 1.0, 0.0)],
        }

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        yield 0, x


@pytest.fixture
def method() -> Method:
    torch.manual_seed(0)
    return TwoGroups(create_network("mlp", (3,), 2, widths=(4, 5)), 2)


def step(method: Method, settings: Settings, gradient: float = 1.0) -> None:
    stage = method.stages(1)[0]
    optimizers = Optimizers(method, stage, settings)
    for parameter in method.block(1).parameters():
        parameter.grad = torch.full_like(parameter, gradient)
    optimizers.step(("block0",), 0.1)
    optimizers.step(("block1",), 0.1)


def test_each_set_of_parameters_has_its_own_rate_and_decay(method: Method) -> None:
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    step(method, Settings(optimizer="sgd", momentum=0.0, weight_decay=0.5))
    after = dict(method.named_parameters())
    assert torch.equal(after["blocks.0.affine.weight"], before["blocks.0.affine.weight"])
    weight, bias = "blocks.1.affine.weight", "blocks.1.affine.bias"
    assert torch.allclose(after[weight], before[weight] - 1.0 * (1 + 0.5 * before[weight]))
    assert torch.allclose(after[bias], before[bias] - 0.1)
    assert all(p.grad is None for p in method.parameters())


def test_clipping_is_by_group(method: Method) -> None:
    before = method.block(1).affine.bias.detach().clone()
    step(method, Settings(optimizer="sgd", momentum=0.0, clip=1.0), gradient=3.0)
    # The norm of 25 gradients of 3 is 15, so each becomes 3 / 15.
    assert torch.allclose(method.block(1).affine.bias, before - 0.1 * 3 / 15, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop"])
def test_every_optimizer_moves_against_the_gradient(method: Method, optimizer: str) -> None:
    before = method.block(1).affine.bias.detach().clone()
    step(method, Settings(optimizer=optimizer))
    assert (method.block(1).affine.bias < before).all()


class RawUpdate(TwoGroups):
    """A method that sets the update of its first weights itself."""

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        first = self.block(0).affine
        return {"block0": [ParameterSet([first.weight], raw_update=True), ParameterSet([first.bias])]}


def test_a_raw_update_is_subtracted_without_an_optimizer() -> None:
    method = RawUpdate(create_network("mlp", (3,), 2, widths=(4, 5)), 2)
    affine = method.block(0).affine
    before = affine.weight.detach().clone()
    optimizers = Optimizers(method, method.stages(1)[0], Settings(weight_decay=0.5, clip=0.1))
    affine.weight.grad = torch.full_like(affine.weight, 2.0)
    affine.bias.grad = torch.ones_like(affine.bias)
    optimizers.step(("block0",), 0.1)
    assert torch.equal(affine.weight, before - 2.0)
    assert affine.weight.grad is None
    assert not any("weight" in key for key in optimizers.state())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
def test_with_a_large_epsilon_steps_are_proportional_to_the_gradient(method: Method, optimizer: str) -> None:
    def moved(epsilon: float, gradient: float) -> float:
        again = TwoGroups(create_network("mlp", (3,), 2, widths=(4, 5)), 2)
        before = again.block(1).affine.bias.detach().clone()
        step(again, Settings(optimizer=optimizer, epsilon=epsilon), gradient)  # type: ignore[arg-type]
        return float((before - again.block(1).affine.bias.detach()).mean())

    assert moved(1e-8, 1e-3) == pytest.approx(moved(1e-8, 1e-2), rel=1e-3)
    assert moved(1.0, 1e-2) == pytest.approx(10 * moved(1.0, 1e-3), rel=0.02)


def trained(method: Method, optimizer: str, momentum: float = 0.9) -> Optimizers:
    settings = Settings(optimizer=optimizer, momentum=momentum)  # type: ignore[arg-type]
    optimizers = Optimizers(method, method.stages(1)[0], settings)
    for parameter in method.block(1).parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step(("block1",), 0.1)
    return optimizers


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop"])
def test_the_state_is_restored(method: Method, optimizer: str, momentum: float) -> None:
    state = trained(method, optimizer, momentum).state()
    settings = Settings(optimizer=optimizer, momentum=momentum)  # type: ignore[arg-type]
    again = Optimizers(method, method.stages(1)[0], settings)
    again.load_state(state)
    restored = again.state()
    assert restored.keys() == state.keys()
    assert all(torch.equal(restored[key], value) for key, value in state.items())


BIAS = "block1/blocks.1.affine.bias/"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({BIAS + "step": None}, "bias/step is missing"),
        ({BIAS + "exp_avg": torch.zeros(3)}, r"has the shape \[3\]"),
        ({BIAS + "exp_avg": torch.zeros(5, dtype=torch.int64)}, "a number format that is wrong"),
        ({BIAS + "square_avg": torch.zeros(5)}, "square_avg' is not part of it"),
        ({"block1/blocks.9.bias/step": torch.zeros(())}, "blocks.9.bias/step' is not part of it"),
        ({"block1/": torch.zeros(())}, "'block1/' is not part of it"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    method: Method, change: dict[str, Tensor | None], words: str
) -> None:
    optimizers = trained(method, "adam")
    changed = {**optimizers.state(), **change}
    again = Optimizers(method, method.stages(1)[0], Settings())
    with pytest.raises(UserError, match=f"The checkpoint does not fit the optimizer: .*{words}"):
        again.load_state({key: value for key, value in changed.items() if value is not None})


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_the_lean_step_is_that_of_torch_bit_for_bit(kind: str, method: Method) -> None:
    affine = method.block(1).affine
    copies = [p.detach().clone().requires_grad_() for p in (affine.weight, affine.bias)]
    torch_groups = [
        {"params": [copies[0]], "lr": 1.0, "weight_decay": 0.5},
        {"params": [copies[1]], "lr": 0.1, "weight_decay": 0.0},
    ]
    chosen = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    reference = chosen(torch_groups, fused=True)
    optimizers = Optimizers(method, method.stages(1)[0], Settings(optimizer=kind, weight_decay=0.5))
    for number in range(3):
        for own, copy in zip((affine.weight, affine.bias), copies, strict=True):
            own.grad = torch.full_like(own, 0.1 + number)
            copy.grad = own.grad.clone()
        optimizers.step(("block1",), 0.1)
        reference.step()
    assert torch.equal(affine.weight, copies[0])
    assert torch.equal(affine.bias, copies[1])


def test_sets_with_equal_settings_share_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    kernel = torch._fused_adam_

    def counted(parameters: list[Tensor], *others: object, **options: object) -> None:
        calls.append(len(parameters))
        kernel(parameters, *others, **options)

    monkeypatch.setattr(torch, "_fused_adam_", counted)
    hff = create_method("hff", create_network("mlp", (3,), 2, widths=(4,)), 2)
    Trainer(hff).step(Batch(torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])))
    assert calls == [3]


def test_state_gets_the_memory_format_of_its_parameter() -> None:
    network = create_network("cnn", (3, 8, 8), 2, channels=(4,))
    first, second = (Trainer(create_method("backprop", network, 2)) for _ in range(2))
    batch = Batch(torch.randn(5, 3, 8, 8), torch.tensor([0, 1, 0, 1, 1]))
    first.step(batch)
    stored = {key: value.contiguous().clone() for key, value in first.optimizers.state().items()}
    second.optimizers.load_state(stored)
    second.method.load_state_dict(first.method.state_dict())
    for trainer in (first, second):
        trainer.step(batch)
    torch.testing.assert_close(first.method.state_dict(), second.method.state_dict(), rtol=0, atol=0)
    weight = first.method.affine_block(0).affine.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
