"""Layer Collaboration: losses and gradients with the goodness of other layers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.layer_collab import LayerCollab
from hff.networks import create_network
from hff.training import Settings, fit

CLASSES = 4
WIDTHS = (7, 6, 8)


def mlp(shape: tuple[int, ...] = (5,), **options: object) -> LayerCollab:
    net = create_network("mlp", shape, CLASSES, widths=WIDTHS)
    method = create_method("layer_collab", net, CLASSES, seed=0, **options)
    assert isinstance(method, LayerCollab)
    return method


def batch(size: int = 16) -> Batch:
    return Batch(torch.randn(size, 5), torch.arange(size) % CLASSES, torch.arange(size), (0, 0, 0, 0))


def walk(method: LayerCollab, h: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The unit-power inputs and the activities of all layers."""
    inputs, activities = [], []
    for block in method.blocks:
        inputs.append(h / h.square().mean(1, keepdim=True).sqrt())
        h = F.relu(inputs[-1] @ block.affine.weight.T + block.affine.bias)
        activities.append(h)
    return inputs, activities


@pytest.mark.parametrize("collaboration", ["full", "causal"])
@pytest.mark.parametrize("goodness", ["mean", "sum"])
def test_losses_and_gradients_in_closed_form(collaboration: str, goodness: str) -> None:
    """dL/dW_i = sum_n p_n dG_i/dW_i, where p_n depends on the other layers, which get no gradient."""
    method = mlp(collaboration=collaboration, goodness=goodness, threshold=0.7, sharpness=1.5)
    given = batch()
    h = method.training_inputs(given)
    size = len(given.x)
    with torch.no_grad():
        inputs, activities = walk(method, h)
        squares = [a.square().mean(1) if goodness == "mean" else a.square().sum(1) for a in activities]
    stage = method.stages(1)[0]
    losses = {group: float(loss) for group, loss in method.update(given, stage)}
    for layer, width in enumerate(WIDTHS):
        layers = range(3) if collaboration == "full" else range(layer + 1)
        total = torch.stack([squares[t] for t in layers]).sum(0)
        theta = 0.7 * sum(WIDTHS[t] if goodness == "sum" else 1 for t in layers)
        logit = 1.5 * (total - theta)
        loss = F.softplus(-logit[:size]).mean() + F.softplus(logit[size:]).mean()
        assert losses[f"block{layer}"] == pytest.approx(float(loss), rel=1e-4)
        push = torch.cat([-torch.sigmoid(-logit[:size]), torch.sigmoid(logit[size:])]) * 1.5 / size
        scale = 2 / width if goodness == "mean" else 2
        expected = (scale * push[:, None] * activities[layer]).T @ inputs[layer]
        gradient = method.block(layer).affine.weight.grad
        assert gradient is not None
        assert torch.allclose(gradient, expected, atol=1e-5)


def test_a_single_layer_is_forward_forward() -> None:
    net = create_network("mlp", (5,), CLASSES, widths=(7,))
    collaborative, plain = create_method("layer_collab", net, CLASSES), create_method("ff", net, CLASSES)
    given = batch()
    for method in (collaborative, plain):
        for _ in method.update(given, method.stages(1)[0]):
            pass
    for a, b in zip(collaborative.parameters(), plain.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.allclose(a.grad, b.grad, atol=1e-6)


@pytest.mark.parametrize(("collaboration", "depends"), [("full", True), ("causal", False)])
def test_the_first_layer_depends_on_upper_layers_only_with_full_collaboration(
    collaboration: str, depends: bool
) -> None:
    def lowest_gradient(scale: float) -> Tensor:
        method = mlp(collaboration=collaboration)
        with torch.no_grad():
            method.block(2).affine.weight.mul_(scale)
        next(iter(method.update(given, method.stages(1)[0])))
        gradient = method.block(0).affine.weight.grad
        assert gradient is not None
        return gradient

    given = batch()
    assert torch.equal(lowest_gradient(1.0), lowest_gradient(2.0)) is not depends


def test_positives_above_the_threshold_have_no_gradient() -> None:
    method = mlp(sharpness=1.0)
    with torch.no_grad():
        method.block(0).affine.bias.fill_(100.0)
    given = batch()
    h = method.training_inputs(given)
    groups = method.update(given, method.stages(1)[0])
    next(groups)
    next(groups)
    # All totals are far above the threshold: positives have no gradient, negatives have the full one.
    inputs, activities = walk(method, h)
    pushed = (2 / 6 / 16 * activities[1][16:]).T @ inputs[1][16:]
    gradient = method.block(1).affine.weight.grad
    assert gradient is not None
    assert torch.allclose(gradient, pushed, atol=1e-4)


def test_goodness_is_computed_before_any_optimizer_step() -> None:
    given = batch()

    def losses(*, disturb: bool) -> list[float]:
        method = mlp()
        found = []
        for _, loss in method.update(given, method.stages(1)[0]):
            found.append(float(loss))
            if disturb:
                with torch.no_grad():
                    method.block(0).affine.weight.zero_()
        return found

    undisturbed = losses(disturb=False)
    assert losses(disturb=True) == undisturbed
    # All layers have the same total.
    assert max(undisturbed) == pytest.approx(min(undisturbed))


def test_the_threshold_grows_with_the_number_of_layers() -> None:
    zero = torch.zeros(3)
    for collaboration, layers in (("full", [3, 3, 3]), ("causal", [1, 2, 3])):
        method = mlp(collaboration=collaboration, threshold=2.0, sharpness=0.5)
        for layer, count in enumerate(layers):
            theta = 0.5 * 2.0 * count
            expected = math.log1p(math.exp(theta)) + math.log1p(math.exp(-theta))
            assert float(method.pair_loss(layer, zero, zero)) == pytest.approx(expected)
    sums = mlp(goodness="sum", threshold=2.0, collaboration="causal")
    assert [sums.units(layer) for layer in range(3)] == [7, 13, 21]


def test_all_layers_predict_including_the_first() -> None:
    method = mlp().eval()
    x = torch.randn(6, 5)
    layers = [scores for _, scores in method.layer_scores(x)]
    assert len(layers) == 3
    assert torch.allclose(method(x), torch.stack(layers).mean(0))
    labeled = torch.cat([x, 10.0 * F.one_hot(torch.full((6,), 2), CLASSES)], 1)
    _, activities = walk(method, labeled)
    for scores, activity in zip(layers, activities, strict=True):
        assert torch.allclose(scores[:, 2], activity.square().mean(1), atol=1e-5)


def test_greedy_layers_use_the_goodness_of_frozen_layers() -> None:
    method = mlp(layer_order="greedy", collaboration="causal")
    first, second, third = method.stages(2)
    assert [stage.blocks for stage in (first, second, third)] == [(0,), (1,), (2,)]
    given = batch()
    joint = mlp(collaboration="causal")
    expected = dict(joint.update(given, joint.stages(1)[0]))
    method.enter(third)
    ((group, loss),) = method.update(given, third)
    assert group == "block2"
    assert torch.allclose(loss, expected["block2"])
    assert all(p.grad is None for layer in (0, 1) for p in method.blocks[layer].parameters())


@pytest.mark.parametrize(
    "options",
    [{"collaboration": "causal"}, {"collaboration": "causal", "layer_order": "greedy"}],
)
def test_causal_collaboration_learns_digits(options: dict[str, object], digits: DataSet) -> None:
    net = create_network("mlp", digits.in_shape, 10, widths=(64, 64))
    summary = fit(
        create_method("layer_collab", net, 10, **options), digits, Settings(epochs=4, batch_size=32)
    )
    assert summary["read_out_accuracy"] > 0.8


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="set collaboration to causal or layer_order to joint"):
        mlp(layer_order="greedy")
    with pytest.raises(UserError, match="Layer Collaboration trains linear layers only"):
        create_method("layer_collab", create_network("cnn", (1, 8, 8), CLASSES), CLASSES)
    with pytest.raises(UserError, match="no local step"):
        mlp().layer_step(0, torch.randn(4, 9), batch())
