"""The contributions of positions add up to the score of every layer of HFF."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from hff.errors import UserError
from hff.evaluation.accuracy import evaluation_mode
from hff.explain.contributions import contributions, unsupported_reason
from hff.methods import Method, create_method
from hff.methods.hff import HFF
from hff.networks import create_network

CLASSES = 5
OPTIONS: list[dict[str, Any]] = [
    *(
        {"grid": grid, "head_hidden": hidden, "loss_on": on, "loss_tap": tap}
        for grid, hidden, on, tap in itertools.product((1, 3, 0), (0, 8), ("pre", "post"), ("map", "pooled"))
    ),
    {"prototypes_per_class": 3, "temperature": 4.0},
    {"prototypes_per_class": 3, "scale_similarity": True, "grid": 2},
    {"prototypes_per_class": 2, "prototype_update": "shadow"},
    {"scale_similarity": False, "scale_input": False, "project_input": True},
]
NETWORKS: dict[str, dict[str, Any]] = {
    "cnn": {"channels": (4, 6)},
    "resnet": {},
    "mlp": {"widths": (12, 9, 7)},
}


def trained_like(network: str, options: dict[str, Any], **shape: Any) -> HFF:
    """A method whose biases and batch statistics differ from their initial values."""
    method = create_method("hff", create_network(network, (2, 13, 13), CLASSES, **shape), CLASSES, **options)
    with torch.no_grad():
        for name, value in [*method.named_parameters(), *method.named_buffers()]:
            if name.endswith(("bias", "running_mean")):
                value.copy_(0.3 * torch.randn_like(value))
    assert isinstance(method, HFF)
    return method


def errors(method: Method, x: Tensor, classes: Tensor) -> list[float]:
    assert isinstance(method, HFF)
    with evaluation_mode(method):
        scored = dict(method.layer_scores(x))
        found = list(contributions(method, x, lambda layer, scores: classes))
    assert [each.layer for each in found] == list(scored)
    differences = []
    for each in found:
        wanted = scored[each.layer].gather(1, classes.unsqueeze(1))[:, 0]
        total = each.positions.double().sum((1, 2))
        differences.append(float(((total - wanted).abs() / wanted.abs().clamp_min(1)).max()))
    return differences


@pytest.mark.parametrize("network", ["cnn", "mlp"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_contributions_add_up_to_the_score_of_every_layer(network: str, options: dict[str, Any]) -> None:
    method = trained_like(network, options, **NETWORKS[network])
    x, classes = torch.randn(6, 2, 13, 13), torch.arange(6) % CLASSES
    assert max(errors(method, x, classes)) < 1e-5


@pytest.mark.parametrize(
    "activation", ["relu", "leaky_relu", "gelu", "tanh", "sigmoid", "sin", "abs", "hard_tanh"]
)
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_contributions_of_a_linear_layer_pass_through_any_activation(activation: str, norm: str) -> None:
    shape = {**NETWORKS["mlp"], "activation": activation, "norm": norm}
    method = trained_like("mlp", {}, **shape)
    assert max(errors(method, torch.randn(4, 2, 13, 13), torch.arange(4))) < 1e-5


def test_contributions_add_up_in_residual_networks() -> None:
    method = trained_like("resnet", {"loss_tap": "pooled"})
    assert max(errors(method, torch.randn(2, 2, 13, 13), torch.arange(2))) < 1e-5


def test_a_position_contributes_what_its_own_vector_contributes() -> None:
    """The paper's head by hand: a 1x1 convolution, the mean over positions, and the cosine to a prototype."""
    method = trained_like("cnn", {"grid": 1, "head_hidden": 0}, channels=(4,))
    x = torch.randn(1, 2, 13, 13)
    with evaluation_mode(method):
        (found,) = contributions(method, x, lambda layer, scores: torch.tensor([2]))
        maps = method.features(0, x)[0]
        linear = method.heads[0].project[0]
        vectors = torch.einsum("oc,chw->ohw", linear.weight, maps) + linear.bias[:, None, None]
        length = vectors.mean((1, 2)).norm()
        by_hand = torch.einsum("o,ohw->hw", method.prototypes[0]()[2, 0], vectors) / length / maps[0].numel()
    torch.testing.assert_close(found.positions[0], by_hand, atol=1e-6, rtol=1e-5)


def test_a_blank_position_contributes_only_its_share_of_the_constant() -> None:
    method = trained_like("mlp", {}, widths=(6,))
    x = torch.randn(1, 2, 13, 13)
    x[:, :, 3, 4] = 0
    with evaluation_mode(method):
        (found,) = contributions(method, x, lambda layer, scores: torch.tensor([0]))
    torch.testing.assert_close(found.positions[0, 3, 4], found.constant[0] / 169)
    assert found.map_of is None


def test_a_linear_layer_above_convolutions_is_explained_by_the_last_map() -> None:
    method = create_method("hff", create_network("alexnet", (3, 64, 64), CLASSES, width_factor=0.05), CLASSES)
    assert isinstance(method, HFF)
    with evaluation_mode(method):
        found = list(contributions(method, torch.randn(2, 3, 64, 64), lambda layer, scores: scores.argmax(1)))
    assert [each.map_of for each in found] == [0, 1, 2, 3, 4, 4, 4, 4]


def test_layer_norm_and_tables_are_refused_in_one_sentence() -> None:
    normed = trained_like("mlp", {}, widths=(6,), norm="layer")
    assert "Layer 0 is not an affine map" in str(unsupported_reason(normed))
    table = create_method("hff", create_network("mlp", (7,), 3, widths=(6,)), 3)
    assert isinstance(table, HFF)
    assert "rows of a table" in str(unsupported_reason(table))
    with pytest.raises(UserError, match="rows of a table"):
        list(contributions(table, torch.randn(2, 7), lambda layer, scores: scores.argmax(1)))
