"""The options of HFF."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from hff import functional
from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.hff import HFF
from hff.networks import create_network
from hff.training import Run, Settings, fit

CLASSES = 4


def mlp(activation: str = "relu", **options: object) -> HFF:
    net = create_network("mlp", (5,), CLASSES, widths=(7, 6), activation=activation)
    method = create_method("hff", net, CLASSES, seed=0, **options)
    assert isinstance(method, HFF)
    return method


def cnn(**options: object) -> HFF:
    method = create_method(
        "hff", create_network("cnn", (3, 8, 8), CLASSES, channels=(6, 8)), CLASSES, seed=0, **options
    )
    assert isinstance(method, HFF)
    return method


def by_hand(method: HFF, x: torch.Tensor, *, scale_input: bool, scale_similarity: bool) -> list[torch.Tensor]:
    """Equations 3 to 6 of the paper, for an MLP with P = 1."""
    scores, h = [], x
    for block, prototypes in zip(method.blocks, method.prototypes, strict=True):
        h = F.relu(h @ block.affine.weight.T + block.affine.bias)
        # A sample whose activity is zero has no direction: 0 / 0 becomes the zero vector.
        direction = (h / h.norm(dim=1, keepdim=True)).nan_to_num()
        scores.append((h if scale_similarity else direction) @ prototypes.vectors[:, 0].T)
        h = h if scale_input else direction
    return scores


@pytest.mark.parametrize("scale_input", [True, False])
@pytest.mark.parametrize("scale_similarity", [True, False])
def test_the_four_normalization_settings_written_out(scale_input: bool, scale_similarity: bool) -> None:
    method = mlp(scale_input=scale_input, scale_similarity=scale_similarity)
    x = torch.randn(9, 5) + 1
    expected = by_hand(method, x, scale_input=scale_input, scale_similarity=scale_similarity)
    for (layer, scores), other in zip(method.layer_scores(x), expected, strict=True):
        assert torch.allclose(scores, other, atol=1e-6), layer


@pytest.mark.parametrize("scale_margin", [True, False])
def test_layer_step_is_the_smooth_margin_of_the_layers_scores(scale_margin: bool) -> None:
    method = mlp(temperature=5.0, lse="mean", scale_margin=scale_margin)
    x, y = torch.randn(9, 5), torch.arange(9) % CLASSES
    scores = dict(method.layer_scores(x))

    def margin(layer: int) -> torch.Tensor:
        return functional.smooth_margin_loss(scores[layer], y, 5.0, lse="mean", scale_margin=scale_margin)

    loss, out = method.layer_step(0, x, Batch(x, y))
    assert torch.allclose(loss, margin(0))
    assert torch.allclose(method.layer_step(1, out, Batch(out, y))[0], margin(1))
    assert not out.requires_grad


def test_cross_entropy_is_that_of_the_raw_scores() -> None:
    method = mlp(loss="cross_entropy", scale_similarity=True)
    x, y = torch.randn(9, 5), torch.arange(9) % CLASSES
    expected = F.cross_entropy(next(method.layer_scores(x))[1], y)
    assert torch.allclose(method.layer_step(0, x, Batch(x, y))[0], expected)


def test_loss_on_pre_scores_the_preactivation() -> None:
    method = mlp(loss_on="pre", scale_similarity=True)
    x = torch.randn(4, 5)
    f = method.block(0).affine(x)
    assert torch.allclose(
        next(method.layer_scores(x))[1], f @ method.prototypes[0].vectors[:, 0].T, atol=1e-6
    )


@pytest.mark.parametrize("activation", ["relu", "tanh", "sin", "abs", "step"])
@pytest.mark.parametrize("loss_on", ["post", "pre"])
def test_activations_have_a_gradient_or_are_refused(activation: str, loss_on: str) -> None:
    if activation == "step" and loss_on == "post":
        with pytest.raises(UserError, match="set loss_on to pre"):
            mlp(activation, loss_on=loss_on)
        return
    method = mlp(activation, loss_on=loss_on)
    x = torch.randn(6, 5)
    _, out = method.layer_step(0, x, Batch(x, torch.arange(6) % CLASSES))
    gradient = method.block(0).affine.weight.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0
    assert not out.requires_grad


@pytest.mark.parametrize("tap", ["map", "pooled"])
@pytest.mark.parametrize("loss_on", ["post", "pre"])
def test_scores_of_a_convolution_before_and_after_activation_and_pooling(tap: str, loss_on: str) -> None:
    method = cnn(loss_tap=tap, loss_on=loss_on, grid=2, scale_similarity=True)
    x = torch.randn(3, 3, 8, 8)
    block = method.block(0)
    tapped = block.affine(x) if loss_on == "pre" else F.relu(block.affine(x))
    if tap == "pooled":
        tapped = F.max_pool2d(tapped, 2)
    features = method.heads[0](tapped)
    assert torch.allclose(
        next(method.layer_scores(x))[1], features @ method.prototypes[0].vectors[:, 0].T, atol=1e-6
    )


def test_aux_channels_default_one_width_several_and_none() -> None:
    def dims(method: HFF) -> list[int]:
        return [p.vectors.shape[2] for p in method.prototypes]

    assert dims(cnn()) == [64, 32]
    assert dims(cnn(aux_channels=(16,))) == [16, 16]
    assert dims(cnn(aux_channels=(16, 8))) == [16, 8]
    assert dims(cnn(aux_channels=(0,), grid=1, head_hidden=0)) == [6, 8]
    with pytest.raises(UserError, match="has 3 widths"):
        cnn(aux_channels=(1, 2, 3))


def test_all_layers_of_a_deep_network_have_bounded_scores() -> None:
    net = create_network("vgg11", (3, 32, 32), CLASSES, width_factor=1 / 32)
    method = create_method("hff", net, CLASSES, scale_input=False, scale_similarity=False)
    layers = dict(method.layer_scores(torch.randn(2, 3, 32, 32)))
    assert sorted(layers) == list(range(11))
    assert method.prototypes[10].vectors.shape == (CLASSES, 1, CLASSES)
    assert all(float(scores.detach().abs().max()) <= 1 + 1e-6 for scores in layers.values())


def test_without_scale_input_a_map_has_unit_length_per_position() -> None:
    method = cnn(scale_input=False)
    out = method.forward_block(0, torch.randn(5, 3, 8, 8))
    assert torch.allclose(out.flatten(1).norm(dim=1), torch.full((5,), math.sqrt(16)), atol=1e-4)


def test_project_input_removes_the_length_of_the_input() -> None:
    method = mlp(project_input=True)
    x = torch.randn(4, 5)
    assert torch.allclose(method(x), method(7 * x), atol=1e-5)
    assert not torch.allclose(mlp()(x), mlp()(7 * x), atol=1e-5)


def test_every_read_out_uses_its_layers() -> None:
    x = torch.randn(4, 5)
    layers = [scores for _, scores in mlp().layer_scores(x)]
    assert torch.equal(mlp(read_out="last")(x), layers[1])
    assert torch.equal(mlp(read_out=0)(x), layers[0])
    assert torch.equal(mlp(read_out=-1)(x), layers[1])
    assert torch.allclose(mlp(read_out="mean")(x), (layers[0] + layers[1]) / 2)
    best = mlp(read_out="best")
    best.observe_validation({0: 0.9, 1: 0.8})
    assert torch.equal(best(x), layers[0])


def test_layer_scores_are_computed_lazily() -> None:
    method = mlp()
    calls: list[int] = []
    for layer, block in enumerate(method.blocks):
        block.affine.register_forward_hook(lambda *_, layer=layer: calls.append(layer))
    next(method.layer_scores(torch.randn(2, 5)))
    assert calls == [0]


def test_greedy_trains_one_layer_after_the_other() -> None:
    assert [s.blocks for s in mlp(layer_order="greedy").stages(3)] == [(0,), (1,)]
    assert [s.epochs for s in mlp(layer_order="greedy").stages(3)] == [3, 3]
    assert [s.epochs for s in mlp(layer_order="greedy", greedy_epochs="shared").stages(3)] == [2, 1]
    method = mlp(layer_order="greedy")
    second = method.stages(1)[1]
    batch = Batch(torch.randn(6, 5), torch.arange(6) % CLASSES, torch.arange(6), (0,))
    assert [group for group, _ in method.update(batch, second)] == ["block1"]
    assert all(p.grad is None for p in method.blocks[0].parameters())


@pytest.mark.parametrize("layer_order", ["joint", "greedy"])
def test_prototypes_can_start_at_class_means(layer_order: str) -> None:
    method = mlp(prototype_init="class_means", layer_order=layer_order)
    x, y = torch.randn(40, 5) + 1, torch.arange(40) % CLASSES
    parts = [Batch(x[:25], y[:25], torch.arange(25), (0,)), Batch(x[25:], y[25:], torch.arange(15), (0,))]
    for stage in method.stages(1):
        method.prepare(stage, lambda: parts)
    h = x
    for block, prototypes in zip(method.blocks, method.prototypes, strict=True):
        h = F.relu(block.affine(h))
        means = torch.stack([(F.normalize(h, dim=1)[y == c]).mean(0) for c in range(CLASSES)])
        assert torch.allclose(prototypes.vectors[:, 0], F.normalize(means, dim=1), atol=1e-5)


def test_prototypes_have_their_own_learning_rate_and_no_weight_decay() -> None:
    method = mlp(prototype_learning_rate=5.0)
    _, prototypes = method.parameter_groups(method.stages(1)[0])["block0"]
    assert (prototypes.learning_rate, prototypes.weight_decay) == (5.0, 0.0)
    assert prototypes.parameters == [method.prototypes[0].vectors]


@pytest.mark.parametrize("update", ["gradient", "class_means", "shadow", "smoothed"])
def test_every_prototype_update_learns_digits(update: str, digits: DataSet) -> None:
    net = create_network("mlp", digits.in_shape, 10, widths=(64, 64))
    method = create_method(
        "hff", net, 10, prototype_update=update, prototype_decay=0.9, prototypes_per_class=2
    )
    start = method.prototypes[1].vectors.clone()
    summary = fit(method, digits, Settings(epochs=4, batch_size=32))
    assert summary["validation_accuracy"]["1"] > 0.8
    vectors = method.prototypes[1].vectors
    assert not torch.equal(start, vectors)
    assert torch.allclose(vectors.norm(dim=2), torch.ones(10, 2), atol=1e-5)


def test_prototypes_approach_their_class_means(digits: DataSet) -> None:
    net = create_network("mlp", digits.in_shape, 10, widths=(64,))
    method = create_method("hff", net, 10, scale_similarity=False, scale_margin=True)
    x = digits.preprocessing(digits.train.fetch(torch.arange(len(digits.train))))
    y = digits.train.labels

    def angle() -> float:
        with torch.no_grad():
            h = functional.project(F.relu(method.block(0).preactivation(x)))
            means = functional.project(torch.stack([h[y == c].mean(0) for c in range(10)]))
            cosines = (means * method.prototypes[0].vectors[:, 0]).sum(1)
        return float(torch.rad2deg(torch.acos(cosines)).mean())

    before = angle()
    fit(method, digits, Settings(epochs=5, batch_size=32))
    assert angle() < before - 20


def test_training_of_the_first_layer_does_not_depend_on_the_second(digits: DataSet) -> None:
    def first_layer(scale_of_second: float) -> torch.Tensor:
        net = create_network("mlp", digits.in_shape, 10, widths=(32, 32))
        method = create_method("hff", net, 10)
        with torch.no_grad():
            method.block(1).affine.weight.mul_(scale_of_second)
        fit(method, digits, Settings(epochs=1, batch_size=64))
        return method.block(0).affine.weight.detach()

    assert torch.equal(first_layer(1.0), first_layer(3.0))


def test_the_angle_between_prototypes_and_class_means_is_recorded_after_training(
    digits: DataSet, tmp_path: Path
) -> None:
    net = create_network("mlp", digits.in_shape, 10, widths=(16, 12))
    method = create_method("hff", net, 10, prototypes_per_class=2)
    run = Run.create(tmp_path / "run", {}, digits)
    fit(method, digits, Settings(epochs=1, batch_size=32), run=run)
    found = run.summary()["diagnostics"]
    assert list(found) == ["prototype_angle_0", "prototype_angle_1"]


def test_the_angle_between_prototypes_and_class_means_written_out() -> None:
    method = create_method("hff", create_network("mlp", (2,), 3, widths=(2,)), 3)
    with torch.no_grad():
        method.block(0).affine.weight.copy_(torch.eye(2))
        method.block(0).affine.bias.zero_()
        method.prototypes[0].vectors.copy_(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]]))
    # The directions of class 0 are (1, 0) and (0, 1), so their mean is at 45 degrees; class 1 has (1, 0).
    x, y = torch.tensor([[2.0, 0.0], [0.0, 5.0], [3.0, 0.0]]), torch.tensor([0, 0, 1])
    halves = [Batch(x[:1], y[:1]), Batch(x[1:], y[1:])]
    # Class 2 does not occur.
    assert method.final_diagnostics(halves) == pytest.approx({"prototype_angle_0": (45 + 90) / 2})
