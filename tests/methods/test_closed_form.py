"""The closed form of linear layers gives the results of autograd, and is left where it does not apply."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hff.batch import Batch
from hff.bench.cost import random_batch
from hff.methods import Method, create_method
from hff.methods.families.local import LocalMethod
from hff.methods.hff import HFF
from hff.methods.mono_forward import MonoForward
from hff.networks import create_network
from hff.training import Settings, Trainer

TOLERANCE = 2e-6
"""The largest difference of any weight or loss after three steps of SGD at a rate of 0.01."""

HFF_OPTIONS = [
    dict(
        zip(("loss", "prototypes_per_class", "loss_on", "scale_input", "scale_similarity"), each, strict=True)
    )
    for each in itertools.product(
        ("smooth_margin", "cross_entropy"), (1, 3), ("post", "pre"), (True, False), (True, False)
    )
]


def trained(name: str, *, closed_form: bool, network: dict[str, Any] | None = None, **options: Any) -> Any:
    table = create_network("mlp", (20,), 5, widths=(16, 12, 16), **(network or {}))
    method = create_method(name, table, 5, **options)
    settings = Settings(closed_form=closed_form, learning_rate=1e-2, optimizer="sgd")
    trainer = Trainer(method, settings)
    losses = [trainer.step(random_batch((20,), 5, 32, step=step)) for step in range(3)]
    return losses, method.state_dict()


def assert_equal_paths(name: str, **options: Any) -> None:
    fast, plain = (trained(name, closed_form=closed_form, **options) for closed_form in (True, False))
    torch.testing.assert_close(fast, plain, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("options", HFF_OPTIONS, ids=lambda each: "-".join(map(str, each.values())))
def test_every_option_of_hff(options: dict[str, Any]) -> None:
    assert_equal_paths("hff", **options)


@pytest.mark.parametrize("update", ["class_means", "shadow", "smoothed"])
def test_every_update_of_prototypes(update: str) -> None:
    assert_equal_paths("hff", prototype_update=update, prototypes_per_class=2, lse="mean")


@pytest.mark.parametrize("name", ["hff", "mono_forward", "simcnn"])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "sigmoid", "gelu", "identity"])
def test_activations(name: str, activation: str) -> None:
    assert_equal_paths(name, network={"activation": activation})


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The layers that are trained in closed form from now on."""
    layers: list[int] = []
    original = LocalMethod._closed_form_steps

    def counted(self: LocalMethod, these: Any, h: Tensor, batch: Batch) -> Any:
        layers.extend(these)
        return original(self, these, h, batch)

    monkeypatch.setattr(LocalMethod, "_closed_form_steps", counted)
    return layers


def step(method: Method, **settings: Any) -> None:
    Trainer(method, Settings(**settings)).step(random_batch((20,), 5, 8))


def mlp_method(name: str = "hff", **network: Any) -> Method:
    return create_method(name, create_network("mlp", (20,), 5, widths=(8, 8), **network), 5)


@pytest.mark.parametrize("name", ["hff", "mono_forward", "simcnn"])
def test_linear_layers_use_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = counting(monkeypatch)
    step(mlp_method(name))
    assert layers == [0, 1]
    step(mlp_method(name), closed_form=False)
    assert layers == [0, 1]


def test_norms_unknown_slopes_and_bfloat16_use_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = counting(monkeypatch)
    step(mlp_method(norm="layer"))
    step(mlp_method(activation="gelu"))
    step(mlp_method(), precision="bfloat16")
    assert layers == []


def test_hooks_and_frozen_weights_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = counting(monkeypatch)
    method, seen = mlp_method(), []
    affine = method.affine_block(0).affine
    affine.register_forward_hook(lambda *each: seen.append(1))
    frozen = method.affine_block(1).affine.weight.requires_grad_(False)
    before = frozen.clone()
    step(method)
    assert (layers, seen) == ([], [1])
    assert torch.equal(frozen, before)


class Doubled(HFF):
    """HFF with another loss, by someone who does not know of the closed form."""

    def loss(self, layer: int, features: Tensor, batch: Batch) -> Tensor:
        return 2 * super().loss(layer, features, batch)


def test_a_subclass_with_another_loss_is_trained_by_its_own_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = counting(monkeypatch)
    network = create_network("mlp", (20,), 5, widths=(8, 8))
    torch.manual_seed(0)
    doubled = Doubled(network, 5)
    torch.manual_seed(0)
    plain = HFF(network, 5)
    batch = random_batch((20,), 5, 8)
    for method in (doubled, plain):
        dict(method.update(batch, method.stages(1)[0]))
    assert layers == [0, 1]
    for twice, once in zip(doubled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(twice.grad, 2 * once.grad)


def test_a_subclass_with_the_same_loss_keeps_it() -> None:
    class Renamed(MonoForward):
        pass

    assert Renamed(create_network("mlp", (20,), 5, widths=(8,)), 5).has_loss_gradient(0)
    assert not Doubled(create_network("mlp", (20,), 5, widths=(8,)), 5).has_loss_gradient(0)


def test_wide_layers_are_not_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hff.methods.families.local.TOGETHER", 8 * 8 * 4)
    calls: list[int] = []
    original = LocalMethod._closed_form_steps

    def counted(self: LocalMethod, these: Any, h: Tensor, batch: Batch) -> Any:
        calls.append(len(these))
        return original(self, these, h, batch)

    monkeypatch.setattr(LocalMethod, "_closed_form_steps", counted)
    step(mlp_method())
    assert calls == [1, 1]


def test_gradients_add_up_as_those_of_autograd() -> None:
    method = mlp_method()
    batch, stage = random_batch((20,), 5, 8), method.stages(1)[0]
    once = [p.grad for _ in [dict(method.update(batch, stage))] for p in method.parameters()]
    once = [each.clone() for each in once if each is not None]
    dict(method.update(batch, stage))
    for parameter, first in zip(method.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * first)
    assert isinstance(method.heads[0], nn.Identity)


@pytest.mark.parametrize("name", ["hff", "mono_forward", "simcnn", "sff", "ff", "local_errors"])
@pytest.mark.parametrize(
    "network",
    [{}, {"pool": 1}, {"pool": 3}, {"activation": "leaky_relu"}, {"activation": "tanh"}, {"dropout": 0.3}],
    ids=str,
)
def test_convolutions_are_as_by_autograd(name: str, network: dict[str, Any]) -> None:
    for options in ({}, {"head_hidden": 0}, {"aux_channels": (6,), "grid": 2}) if name == "hff" else ({},):
        states = []
        for closed_form in (True, False):
            table = create_network("cnn", (3, 12, 12), 5, channels=(4, 6), **network)
            method = create_method(name, table, 5, **options)
            trainer = Trainer(method, Settings(closed_form=closed_form, learning_rate=1e-2, optimizer="sgd"))
            for number in range(2):
                trainer.step(random_batch((3, 12, 12), 5, 8, step=number, views=method.views))
            states.append(method.state_dict())
        torch.testing.assert_close(*states, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["hff", "mono_forward", "sff"])
@pytest.mark.parametrize("pool", [1, 2])
def test_large_maps_are_computed_in_parts(name: str, pool: int, monkeypatch: pytest.MonkeyPatch) -> None:
    states, batch = [], random_batch((3, 8, 8), 5, 9)
    for limit in (1, 3 * 4 * 64 * 4, 10**9):
        monkeypatch.setattr("hff.networks.affine.PART", limit)
        method = create_method(name, create_network("cnn", (3, 8, 8), 5, channels=(4, 4), pool=pool), 5)
        Trainer(method, Settings(learning_rate=1e-2, optimizer="sgd")).step(batch)
        states.append(method.state_dict())
    torch.testing.assert_close(states[0], states[2], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(states[1], states[2], rtol=0, atol=TOLERANCE)


def test_convolutions_are_recorded_where_the_features_are_the_activity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded: list[int] = []
    original = LocalMethod._recorded_step

    def counted(self: LocalMethod, layer: int, *others: Any) -> Any:
        recorded.append(layer)
        return original(self, layer, *others)

    monkeypatch.setattr(LocalMethod, "_recorded_step", counted)
    for options, expected in (({}, [0, 1]), ({"norm": "batch"}, []), ({"activation": "gelu"}, [])):
        recorded.clear()
        table = create_network("cnn", (3, 12, 12), 5, channels=(4, 6), **options)
        step_images = random_batch((3, 12, 12), 5, 8)
        Trainer(create_method("hff", table, 5)).step(step_images)
        assert recorded == expected
