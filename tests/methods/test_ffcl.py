"""FFCL against its equations, written out."""

import math

import pytest
import torch
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.ffcl import FFCL
from hff.modules.labels import wrong_labels
from hff.networks import Network, create_network

CLASSES = 4
SIZE = 6


def net() -> Network:
    return create_network("mlp", (5,), CLASSES, widths=(7, 8, 6))


def ffcl(table: Network | None = None, **options: object) -> FFCL:
    method = create_method("ffcl", table or net(), CLASSES, **options)
    assert isinstance(method, FFCL)
    return method


def batch() -> Batch:
    return Batch(torch.randn(SIZE, 5), torch.arange(SIZE) % CLASSES, torch.arange(SIZE), (0, 0, 0, 0))


def wrong(given: Batch) -> Tensor:
    return wrong_labels(given.y, CLASSES, given.uniform(1, "negatives")[:, 0])


def normed(h: Tensor) -> Tensor:
    # The activity of a layer may be zero.
    return h / (h.square().mean(1, keepdim=True).sqrt() + 1e-8)


def written_out(method: FFCL, x: Tensor, labels: list[Tensor]) -> list[tuple[int, list[Tensor]]]:
    """(layer, goodness [B] of each list of labels) at every step and layer, straight from the equations."""
    paths = len(labels) if method.conditioned else 1
    depth = len(method.blocks)
    before: list[list[Tensor]] | None = None
    found = []
    for _ in range(method.steps):
        below = [x] * paths
        now = []
        for layer in range(depth):
            weight, bias = method.block(layer).affine.weight, method.block(layer).affine.bias
            driven = [normed(h) @ weight.T + bias for h in below]
            if before is not None and layer < depth - 1:
                back = method.feedback[layer].weight
                driven = [a + normed(h) @ back.T for a, h in zip(driven, before[layer + 1], strict=True)]
            vectors = method.label_scale * method.label_vectors[layer]
            active = [torch.relu(driven[i % paths] + vectors[c]) for i, c in enumerate(labels)]
            found.append((layer, [h.square().mean(1) for h in active]))
            below = [h.detach() for h in (active if method.conditioned else map(torch.relu, driven))]
            now.append(below)
        before = now
    return found


@pytest.mark.parametrize("forward_features", ["free", "conditioned"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_losses_and_gradients_written_out(steps: int, forward_features: str) -> None:
    method, given = ffcl(steps=steps, forward_features=forward_features, threshold=0.7), batch()
    losses = [
        (layer, torch.log1p(torch.exp(0.7 - good)).mean() + torch.log1p(torch.exp(bad - 0.7)).mean())
        for layer, (good, bad) in written_out(method, given.x, [given.y, wrong(given)])
    ]
    parameters = list(method.parameters())
    gradients = torch.autograd.grad(sum(loss for _, loss in losses), parameters)
    steps_taken = list(method.update(given, method.stages(1)[0]))
    assert [group for group, _ in steps_taken] == [f"block{layer}" for layer, _ in losses]
    for (_, loss), (_, expected) in zip(steps_taken, losses, strict=True):
        assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def test_the_gradient_of_the_label_vectors_in_closed_form() -> None:
    method, given = ffcl(steps=1), batch()
    next(iter(method.update(given, method.stages(1)[0])))
    weight, bias = method.block(0).affine.weight, method.block(0).affine.bias
    expected = torch.zeros(CLASSES, 7)
    for sign, labels in ((-1, given.y), (1, wrong(given))):
        vectors = method.label_scale * method.label_vectors[0][labels]
        h = torch.relu(normed(given.x) @ weight.T + bias + vectors)
        pull = torch.sigmoid(sign * (h.square().mean(1) - method.threshold))
        # d goodness / d h = 2 h / width, and h moves by the scale of the label.
        each = sign * pull.unsqueeze(1) * 2 * h / 7 * method.label_scale / SIZE
        expected.index_add_(0, labels, each.detach())
    assert torch.allclose(method.label_vectors[0].grad, expected, atol=1e-6)


@pytest.mark.parametrize("forward_features", ["free", "conditioned"])
def test_prediction_tries_every_class_in_the_last_step(forward_features: str) -> None:
    method, x = ffcl(forward_features=forward_features).eval(), torch.randn(3, 5)
    every = [torch.full((3,), c) for c in range(CLASSES)]
    last = written_out(method, x, every)[-3:]
    scores = list(method.layer_scores(x))
    assert [layer for layer, _ in scores] == [0, 1, 2]
    for (_, found), (_, expected) in zip(scores, last, strict=True):
        assert torch.allclose(found, torch.stack(expected, 1), atol=1e-5)
    assert torch.allclose(method(x), torch.stack([found for _, found in scores]).mean(0))


@pytest.mark.parametrize(("forward_features", "rows"), [("free", 3), ("conditioned", 3 * CLASSES)])
def test_free_features_are_computed_once_for_all_labels(forward_features: str, rows: int) -> None:
    method = ffcl(forward_features=forward_features).eval()
    seen: list[int] = []
    for layer in (1, 2):
        method.block(layer).affine.register_forward_hook(lambda _, inputs, out: seen.append(len(out)))
    method(torch.randn(3, 5))
    assert seen == [rows] * 4
    assert method.passes == 2 * rows // 3
    assert ffcl(steps=1).passes == 1


def test_outputs_are_computed_before_the_optimizer_step() -> None:
    given = batch()

    def losses(spoil: bool) -> list[float]:
        method = ffcl(steps=1)
        found = []
        for group, loss in method.update(given, method.stages(1)[0]):
            found.append(loss.item())
            if spoil and group == "block0":
                torch.nn.init.zeros_(method.block(0).affine.weight)
        return found

    assert losses(spoil=True) == losses(spoil=False)


def test_feedback_starts_at_the_second_step() -> None:
    method, given = ffcl(steps=2), batch()
    assert len(method.feedback) == 2
    updates = method.update(given, method.stages(1)[0])
    for _ in range(3):
        next(updates)
    assert all(loop.weight.grad is None for loop in method.feedback)
    next(updates)
    assert method.feedback[0].weight.grad is not None
    assert method.feedback[1].weight.grad is None


def test_inputs_and_feedback_are_normalized_separately() -> None:
    method, x = ffcl().eval(), torch.randn(3, 5)
    expected = method(x)
    assert torch.allclose(method(100 * x), expected, atol=1e-4)
    with torch.no_grad():
        # The last layer affects other layers only by feedback, which uses only its direction.
        for p in method.block(2).parameters():
            p.mul_(10)
    scaled, original = dict(method.layer_scores(x)), dict(ffcl().eval().layer_scores(x))
    assert torch.allclose(scaled[1], original[1], atol=1e-4)
    assert not torch.allclose(scaled[2], original[2], atol=1e-1)


def test_a_larger_label_scale_reduces_the_influence_of_the_input() -> None:
    x = torch.randn(50, 5)

    def share_of_the_input(scale: float) -> float:
        scores = ffcl(label_scale=scale).eval()(x)
        return (scores.var(0).mean() / scores.var()).item()

    assert share_of_the_input(100.0) < share_of_the_input(5.0) < share_of_the_input(0.1)


def test_losses_of_images_with_norms_and_dropout_are_finite() -> None:
    table = create_network(
        "mlp", (1, 4, 4), CLASSES, widths=(6, 6), norm="layer", norm_at="input", dropout=0.1
    )
    method = ffcl(table)
    x = torch.randn(SIZE, 1, 4, 4)
    given = Batch(x, torch.arange(SIZE) % CLASSES, torch.arange(SIZE), (0, 0, 0, 0))
    assert all(math.isfinite(loss) for _, loss in method.update(given, method.stages(1)[0]))
    assert method.eval()(x).shape == (SIZE, CLASSES)


def test_gradients_of_a_prediction_reach_the_input_through_all_layers() -> None:
    method, x = ffcl(read_out="last").eval(), torch.randn(1, 5, requires_grad=True)
    method(x)[0, 0].backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="steps must be at least 1"):
        ffcl(steps=0)
    with pytest.raises(UserError, match="label_scale must be above 0"):
        ffcl(label_scale=0.0)
    with pytest.raises(UserError, match="trains linear layers only"):
        ffcl(create_network("cnn", (1, 8, 8), CLASSES, channels=(4,)))
