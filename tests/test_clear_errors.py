"""From Python, a mistake is one clear sentence, not a traceback from deep inside or a silent surprise."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hff
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import LocalMethod, MethodInfo, methods
from hff.training.optimizers import Optimizers

CLASSES = 10


def mlp(name: str = "hff", **options: Any) -> hff.Method:
    network = hff.create_network("mlp", (1, 8, 8), CLASSES, widths=(16,))
    return hff.create_method(name, network, CLASSES, **options)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "lion"}, "optimizer must be one of adam, adamw, sgd, rmsprop, not 'lion'"),
        ({"epochs": 2.5}, "epochs must be a whole number, not 2.5"),
        ({"batch_size": "many"}, "batch_size must be a whole number"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number"),
        ({"momentum": 2.0}, "momentum must be at least 0 and below 1"),
        ({"precision": "float16"}, "precision must be one of float32, bfloat16"),
    ],
)
def test_settings_are_checked_like_flags(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        hff.Settings(**settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "loss must be one of smooth_margin, cross_entropy, not 'hinge'"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"prototypes_per_class": 1.5}, "prototypes_per_class must be a whole number"),
    ],
)
def test_options_of_a_method_are_checked_like_flags(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        mlp(**options)


def test_a_single_width_is_a_network_of_one_layer() -> None:
    widths: Any = 64
    assert [row.width for row in hff.create_network("mlp", (4,), 3, widths=widths).rows] == [64]


@pytest.mark.parametrize("in_shape", [64, (0, 8, 8), (1.5,)])
def test_an_input_shape_that_is_not_one_is_refused(in_shape: Any) -> None:
    with pytest.raises(UserError, match="in_shape must be a shape such as"):
        hff.create_network("mlp", in_shape, 3)


def test_a_dropout_above_one_is_refused() -> None:
    network = hff.create_network("mlp", (4,), 3, dropout=1.5)
    with pytest.raises(UserError, match="dropout must be at least 0 and below 1"):
        hff.create_method("hff", network, 3)


def test_a_network_that_cannot_fit_is_refused_before_it_is_built() -> None:
    network = hff.create_network("mlp", (1000,), 3, widths=(10**9,))
    with pytest.raises(UserError, match="parameters, and training them takes about"):
        hff.create_method("hff", network, 3)


def test_heads_of_a_deep_cnn_stay_small() -> None:
    rows = hff.create_network("cnn", (3, 32, 32), 10, channels=(8,) * 16, pool=1).rows
    assert max(row.aux_channels or 0 for row in rows) == 512


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((2, 1, 8, 8), np.float32), "takes a tensor, not a ndarray"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.float64), "inputs of type torch.float32, not torch.float64"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "inputs of type torch.float32, not torch.uint8"),
        (torch.zeros(2, 1, 9, 9), r"inputs of shape \[B, 1, 8, 8\], not \[2, 1, 9, 9\]"),
    ],
)
@pytest.mark.parametrize("name", ["hff", "ff", "backprop"])
def test_inputs_of_another_type_or_shape_are_refused(name: str, inputs: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        mlp(name)(inputs)
    with pytest.raises(UserError, match=message):
        mlp(name).layer_scores(inputs)


def test_data_that_do_not_match_the_method_are_refused(digits: DataSet) -> None:
    network = hff.create_network("mlp", digits.in_shape, 7, widths=(16,))
    other_classes = hff.create_method("hff", network, 7)
    network = hff.create_network("mlp", (1, 9, 9), 10, widths=(16,))
    other_shape = hff.create_method("hff", network, 10)
    with pytest.raises(UserError, match="has 7 classes, but data set 'digits' has 10"):
        hff.fit(other_classes, digits, hff.Settings())
    with pytest.raises(UserError, match="has 7 classes, but data set 'digits' has 10"):
        hff.evaluate(other_classes, digits)
    with pytest.raises(UserError, match=r"inputs of shape \[1, 9, 9\]"):
        hff.fit(other_shape, digits, hff.Settings())


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            torch.zeros(2, 1, 8, 8),
            torch.tensor([3, 77]),
            "must be 0 to 9, the classes of the method, not 3 to 77",
        ),
        (
            torch.zeros(2, 1, 8, 8),
            torch.tensor([3.0, 7.0]),
            "one integer for each of 2 samples, not torch.float32",
        ),
        (
            torch.zeros(2, 1, 8, 8),
            torch.tensor([3]),
            r"one integer for each of 2 samples, not torch.int64 \[1\]",
        ),
        (torch.zeros(2, 1, 8, 8).double(), torch.tensor([3, 7]), "not torch.float64"),
    ],
)
def test_a_batch_that_does_not_fit_the_method_is_refused(x: Tensor, y: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        hff.Trainer(mlp()).step(hff.Batch(x, y))


def test_objects_of_another_type_are_refused(digits: DataSet) -> None:
    anything: Any = "digits"
    network = hff.create_network("mlp", (4,), 3, widths=(5,))
    for call, message in (
        (lambda: hff.evaluate(mlp(), anything), "evaluate takes a DataSet"),
        (lambda: hff.fit(mlp(), anything, hff.Settings()), "fit takes a DataSet"),
        (lambda: hff.fit(anything, digits, hff.Settings()), "fit takes a method"),
        (lambda: hff.fit(mlp(), digits, anything), "fit takes hff.Settings"),
        (lambda: hff.Trainer(anything), "takes a method, not 'digits'"),
        (lambda: hff.Trainer(mlp(), anything), "takes hff.Settings, not 'digits'"),
        (lambda: hff.predict(mlp(), torch.zeros(2, 1, 8, 8), top_k=anything), "top_k must be 1 to 10"),
        (lambda: hff.predict(mlp(), torch.zeros(2, 1, 8, 8), batch_size=anything), "must be a whole number"),
        (lambda: hff.evaluate(anything, digits), "evaluate takes a method"),
        (lambda: hff.evaluate(mlp(), digits, device="zz"), "Device 'zz' is not available here; choose auto"),
        (lambda: hff.evaluate(mlp(), digits, device="cpu:7"), "Device 'cpu:7' is not available here"),
        (lambda: hff.evaluate(mlp(), digits, batch_size=anything), "batch size must be a whole number of at"),
        (lambda: digits.batches(anything), "The batch size must be a whole number of at least 1, not 'dig"),
        (lambda: digits.batches(0), "The batch size must be a whole number of at least 1, not 0"),
        (lambda: digits.batches(8, epoch=anything), "epoch must be a whole number of type int, not 'digits'"),
        (lambda: digits.batches(8, seed=anything), "seed must be a whole number of type int, not 'digits'"),
        (lambda: hff.create_method("hff", anything, 3), "must come from create_network; it is 'digits'"),
        (lambda: hff.create_method("hff", network, anything), "classes must be a whole number, not 'digits'"),
        (lambda: hff.Trainer(mlp()).step(anything), r"takes hff.Batch\(x, y\), not a str"),
        (lambda: hff.load_method(None), "given by the path of its folder, not by None"),  # type: ignore[arg-type]
        (lambda: hff.load_data(None), "must be a string, not None"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UserError, match=message):
            call()


def test_a_seed_is_a_whole_number(digits: DataSet) -> None:
    seed: Any
    for seed in ("a", 1.5, True, np.int64(1)):
        for call in (
            lambda: hff.fit(mlp(), digits, hff.Settings(), seed=seed),  # noqa: B023
            lambda: hff.Trainer(mlp(), seed=seed),  # noqa: B023
            lambda: mlp(seed=seed),  # noqa: B023
            lambda: hff.load_data("digits", seed=seed),  # noqa: B023
        ):
            with pytest.raises(UserError, match="seed must be a whole number"):
                call()


def test_the_numbers_of_numpy_are_settings() -> None:
    numbers: Any = {"epochs": np.int64(3), "learning_rate": np.float32(0.5)}
    settings = hff.Settings(**numbers)
    assert (settings.epochs, settings.learning_rate) == (3, 0.5)
    assert (type(settings.epochs), type(settings.learning_rate)) == (int, float)


class Forgetful(LocalMethod):
    """A rule with a weight that it never trains."""

    name = "forgetful"
    info = MethodInfo(title="Forgetful", paper="-", passes="1", needs_negatives=False, gradient_reach=0)

    def __init__(self, network: hff.Network, classes: int, **options: Any) -> None:
        super().__init__(network, classes, **options)
        self.heads = nn.ModuleList(nn.Linear(block.out_features, classes) for block in network.blocks())
        self.extra = nn.Parameter(torch.ones(classes))

    def scores(self, layer: int, features: Tensor) -> Tensor:
        return super().scores(layer, features) * self.extra


def test_a_parameter_that_no_group_contains_is_refused_unless_it_is_frozen() -> None:
    method = Forgetful(hff.create_network("mlp", (4,), 3, widths=(5,)), 3)
    with pytest.raises(UserError, match="would never train 'extra': add it to parameter_groups"):
        hff.Trainer(method)
    method.extra.requires_grad_(False)
    hff.Trainer(method).step(hff.Batch(torch.randn(6, 4), torch.arange(6) % 3))


@pytest.mark.parametrize("name", ["hff", "noprop_dt"])
def test_weights_that_are_not_finite_end_the_training(name: str, digits: DataSet) -> None:
    settings = hff.Settings(epochs=2, optimizer="sgd", learning_rate=1e30)
    with pytest.raises(UserError, match="no longer finite; use a smaller learning rate"):
        hff.fit(mlp(name), digits, settings)


def test_a_training_that_ends_at_chance_says_so(digits: DataSet) -> None:
    method = mlp("backprop")
    with pytest.warns(UserWarning, match="did not learn"):
        hff.fit(method, digits, hff.Settings(epochs=1, learning_rate=1e-12))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_method_trains_with_sgd(momentum: float) -> None:
    settings = hff.Settings(optimizer="sgd", learning_rate=1e-3, momentum=momentum)
    for name in methods:
        network = hff.create_network("mlp", (1, 8, 8), CLASSES, widths=(16, 16))
        if methods[name].unsupported_reason(network, CLASSES):
            network = hff.create_network("cnn", (1, 8, 8), CLASSES, channels=(10, 10))
        trainer = hff.Trainer(hff.create_method(name, network, CLASSES), settings)
        trainer.prepare([batch := hff.Batch(torch.randn(6, 1, 8, 8), torch.arange(6) % CLASSES)])
        # In some methods, a parameter gets its first gradient in a later step than the others.
        for _ in range(4):
            trainer.step(batch)


def test_momentum_that_starts_later_is_that_of_a_parameter_alone() -> None:
    method = mlp("backprop")
    optimizers = Optimizers(
        method, method.stages(1)[0], hff.Settings(optimizer="sgd", momentum=0.9, learning_rate=0.1)
    )
    early, late = list(method.parameters())[:2]
    (group,) = method.parameter_groups(method.stages(1)[0])
    before = late.detach().clone()
    for step in range(3):
        early.grad = torch.ones_like(early)
        late.grad = torch.ones_like(late) if step else None
        optimizers.step((group,), 0.1)
    # The gradient, then the gradient and 0.9 of the step before.
    torch.testing.assert_close(late.detach(), before - 0.1 * (1 + 1.9))
