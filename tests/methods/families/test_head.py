"""The control of a local rule: its own network, heads and losses, trained by backprop."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import Group, create_method, methods
from hff.methods.families.head import HeadMethod
from hff.methods.method import Method, group_name
from hff.networks import create_network
from hff.training import Settings, Trainer, fit

CLASSES = 4
MLP = create_network("mlp", (6,), CLASSES, widths=(7, 5, 8))
CNN = create_network("cnn", (3, 8, 8), CLASSES, channels=(4, 8))
RULES = [name for name, cls in methods.items() if issubclass(cls, HeadMethod)]


def batch(shape: tuple[int, ...] = (6,)) -> Batch:
    draw = torch.Generator().manual_seed(0)
    return Batch(torch.randn(8, *shape, generator=draw), torch.arange(8) % CLASSES, torch.arange(8), (0,))


def gradients(method: Method, given: Batch) -> dict[str, Tensor]:
    (stage,) = method.stages(1)
    method.enter(stage)
    method.zero_grad(set_to_none=True)
    for _ in method.update(given, stage):
        pass
    return {name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None}


def test_the_rules_that_have_a_control() -> None:
    assert sorted(RULES) == ["hff", "local_errors", "mono_forward", "sff", "simcnn"]


@pytest.mark.parametrize("backprop", ["last_loss", "all_losses"])
def test_gradients_of_hff_written_out(backprop: str) -> None:
    """Plain autograd through the whole stack, with Eq. 6 and Eq. 7 written out."""
    method = create_method("hff", MLP, CLASSES, backprop=backprop, temperature=3.0)
    given, tau = batch(), 3.0
    layers = range(3) if backprop == "all_losses" else [2]
    leaves = {name: p.detach().clone().requires_grad_() for name, p in method.named_parameters()}
    h, total = given.x, torch.zeros(())
    for layer in range(3):
        block = f"blocks.{layer}.affine"
        h = F.relu(h @ leaves[f"{block}.weight"].T + leaves[f"{block}.bias"])
        if layer in layers:
            g = h @ leaves[f"prototypes.{layer}.vectors"][:, 0].T
            own = torch.eye(CLASSES, dtype=torch.bool)[given.y]
            wrong = (tau * g).masked_fill(own, -torch.inf).logsumexp(1) / tau
            total = total + F.softplus(wrong - g[own]).mean()
    expected = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    found = gradients(method, given)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-6), name


@pytest.mark.parametrize("network", [MLP, CNN], ids=["mlp", "cnn"])
@pytest.mark.parametrize("name", RULES)
def test_the_sum_of_all_losses_without_any_detached_output(name: str, network: Any) -> None:
    method = create_method(name, network, CLASSES, backprop="all_losses")
    given = batch(network.in_shape)
    found = gradients(method, given)
    method.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    h, total = given.x, torch.zeros(())
    for layer in range(len(method.blocks)):
        features = method.features(layer, h)
        total = total + method.loss(layer, features, given)
        h = method.next_input(layer, features, h)
    if method.classifier is not None:
        total = total + F.cross_entropy(method.classifier(h.flatten(1)), given.y)
    total.backward()
    for key, parameter in method.named_parameters():
        assert torch.allclose(found[key], parameter.grad, atol=1e-6), key


@pytest.mark.parametrize("name", RULES)
def test_the_sum_of_all_losses_starts_at_the_weights_of_the_rule(name: str) -> None:
    rule, control = (create_method(name, CNN, CLASSES, backprop=each) for each in ("none", "all_losses"))
    assert rule.state_dict().keys() == control.state_dict().keys()
    assert all(torch.equal(value, control.state_dict()[key]) for key, value in rule.state_dict().items())


@pytest.mark.parametrize("name", RULES)
def test_the_last_loss_reaches_all_blocks_and_needs_one_head(name: str) -> None:
    method = create_method(name, CNN, CLASSES, backprop="last_loss")
    given = batch((3, 8, 8))
    with torch.no_grad():
        for parameter in method.parameters():
            if not parameter.any():  # some classifiers start at zero
                parameter.normal_()
    assert gradients(method, given).keys() == dict(method.named_parameters()).keys()
    trained = sum(p.numel() for p in method.parameters())
    assert method.prediction_parameters == trained
    assert trained == create_method(name, CNN, CLASSES).prediction_parameters
    assert [layer for layer, _ in method.layer_scores(given.x)] == [1]


@pytest.mark.parametrize("backprop", ["last_loss", "all_losses"])
@pytest.mark.parametrize("name", RULES)
def test_the_instance_declares_what_it_does(name: str, backprop: str) -> None:
    rule, control = create_method(name, CNN, CLASSES), create_method(name, CNN, CLASSES, backprop=backprop)
    assert rule.group in (Group.LOCAL, Group.AUXILIARY)
    assert (rule.layer_local, rule.top_signal, rule.gradient_reach) == (True, False, 0)
    assert control.group == Group.BACKPROP
    assert (control.layer_local, control.top_signal, control.gradient_reach) == (False, True, "all")
    assert not control.steps_within_batch
    assert [stage.blocks for stage in control.stages(3)] == [(0, 1)]
    groups = control.parameter_groups(control.stages(3)[0])
    assert {p for sets in groups.values() for each in sets for p in each.parameters} == set(
        control.parameters()
    )


@pytest.mark.parametrize("backprop", ["last_loss", "all_losses"])
@pytest.mark.parametrize(
    "options", [{}, {"prototype_update": "class_means"}, {"prototype_init": "class_means"}]
)
def test_prototypes_stay_on_the_sphere(backprop: str, options: dict[str, str]) -> None:
    method = create_method("hff", MLP, CLASSES, backprop=backprop, **options)
    trainer = Trainer(method, Settings(learning_rate=0.1))
    before = method.state_dict()["prototypes.2.vectors"].clone()
    trainer.prepare([batch()])
    trainer.step(batch())
    vectors = method.state_dict()["prototypes.2.vectors"]
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(CLASSES, 1), atol=1e-5)
    assert not torch.equal(vectors, before)


@pytest.mark.parametrize("name", RULES)
def test_two_steps_resume_bit_exactly(name: str) -> None:
    settings, given = Settings(learning_rate=1e-2), batch((3, 8, 8))
    straight = create_method(name, CNN, CLASSES, backprop="last_loss")
    trainer = Trainer(straight, settings)
    trainer.step(given)
    resumed = create_method(name, CNN, CLASSES, backprop="last_loss", seed=9)
    resumed.load_state_dict({key: value.clone() for key, value in straight.state_dict().items()})
    again = Trainer(resumed, settings)
    again.optimizers.load_state({key: value.clone() for key, value in trainer.optimizers.state().items()})
    again.steps = trainer.steps
    losses = [each.step(given) for each in (trainer, again)]
    assert losses[0] == losses[1]
    assert all(torch.equal(value, resumed.state_dict()[key]) for key, value in straight.state_dict().items())


def test_losses_are_those_of_the_layers_and_the_last_one_stands_for_all() -> None:
    stage = create_method("hff", MLP, CLASSES).stages(1)[0]
    control = create_method("hff", MLP, CLASSES, backprop="all_losses")
    found = dict(control.update(batch(), stage))
    assert list(found) == [group_name(layer) for layer in range(3)]
    h = batch().x
    for layer in range(3):
        h = control.features(layer, h)
        assert torch.allclose(found[group_name(layer)], control.loss(layer, h, batch()))
    last = dict(create_method("hff", MLP, CLASSES, backprop="last_loss").update(batch(), stage))
    assert list(last) == list(found)
    assert len(set(map(float, last.values()))) == 1


@pytest.mark.parametrize("backprop", ["last_loss", "all_losses"])
def test_learns_digits(backprop: str, digits: DataSet) -> None:
    network = create_network("mlp", digits.in_shape, 10, widths=(64, 64))
    method = create_method("hff", network, 10, backprop=backprop)
    summary = fit(method, digits, Settings(epochs=4, batch_size=32, learning_rate=3e-3))
    assert summary["read_out_accuracy"] > 0.9


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="use layer_order joint"):
        create_method("hff", MLP, CLASSES, backprop="all_losses", layer_order="greedy")
    with pytest.raises(UserError, match="use read_out last"):
        create_method("hff", MLP, CLASSES, backprop="last_loss", read_out="mean")
    assert create_method("hff", MLP, CLASSES, backprop="last_loss", read_out=2).read_out == 2
