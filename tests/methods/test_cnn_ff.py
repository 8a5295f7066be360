import math

import pytest
import torch
from torch.nn import functional as F

from hff.batch import Batch
from hff.data import Batches, DataSet
from hff.errors import UserError
from hff.methods import create_method, methods
from hff.methods.cnn_ff import ConvolutionalForwardForward
from hff.modules.labels import Morphology
from hff.networks import create_network
from hff.training import Settings, fit
from hff.training.optimizers import Optimizers


def small(depth: int = 3, **options: object) -> ConvolutionalForwardForward:
    net = create_network("cnn_ff", (2, 8, 8), 4, channels=(5, 4, 3)[:depth], kernel=3)
    method = create_method("cnn_ff", net, 4, **options)
    assert isinstance(method, ConvolutionalForwardForward)
    return method


def batch(size: int = 8, step: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(step)
    x = torch.randn(size, 2, 8, 8, generator=draw)
    return Batch(x, torch.randint(0, 4, (size,), generator=draw), torch.arange(size), (0, 0, 0, step))


def wave(label: int) -> torch.Tensor:
    """The wave of a class [8, 8]: one period across the image, 45 degrees apart, at unit power."""
    middles = (torch.arange(8) + 0.5) / 8
    angle = math.radians(45 * label)
    pattern = torch.sin(2 * math.pi * (middles * math.cos(angle) + middles[:, None] * math.sin(angle)))
    return (pattern - pattern.mean()) / pattern.std(correction=0)


@pytest.mark.parametrize(("goodness", "threshold", "sharpness"), [("mean", 0.6, 3.0), ("sum", 0.4, 1.0)])
def test_the_gradient_of_the_first_layer_written_out(
    goodness: str, threshold: float, sharpness: float
) -> None:
    """Against autograd on the equations, with waves, layer norm and loss written out."""
    method = small(goodness=goodness, threshold=threshold, sharpness=sharpness, label_intensity=0.3)
    given = batch()
    h = method.training_inputs(given)
    found, _ = method.layer_step(0, h, given)
    affine = method.block(0).affine
    weight = affine.weight.detach().clone().requires_grad_()
    loss = torch.zeros(())
    for labels, sign in ((given.y, 1), (method.negatives(given), -1)):
        x = 0.7 * given.x + 0.3 * torch.stack([wave(label) for label in labels.tolist()])[:, None]
        x = x / x.square().mean((1, 2, 3), keepdim=True).sqrt()
        a = F.layer_norm(F.conv2d(x, weight, padding=1), (5, 8, 8)).relu()
        squares = a.square().mean((1, 2, 3)) if goodness == "mean" else a.square().sum((1, 2, 3))
        level = threshold if goodness == "mean" else threshold * 5 * 8 * 8
        loss = loss - F.logsigmoid(sign * sharpness * (squares - level)).mean()
    loss.backward()
    assert torch.allclose(found, loss.detach(), rtol=1e-4)
    assert affine.weight.grad is not None
    assert weight.grad is not None
    assert torch.allclose(affine.weight.grad, weight.grad, atol=1e-4 * float(weight.grad.abs().max()))


def test_the_next_layer_gets_the_whole_map_at_unit_power() -> None:
    method = small(depth=2).eval()
    x = torch.randn(3, 2, 8, 8)
    h = method.encoding(x, torch.tensor([1, 1, 1]))
    below = method.block(0)(h / h.square().mean((1, 2, 3), keepdim=True).sqrt())
    above = method.block(1)(below / below.square().mean((1, 2, 3), keepdim=True).sqrt())
    assert torch.allclose(method(x)[:, 1], above.square().mean((1, 2, 3)), rtol=1e-4)


def test_morphology_transforms_the_image_instead_of_adding_a_pattern() -> None:
    method = small(label="morphology").eval()
    assert isinstance(method.encoding, Morphology)
    x = torch.randn(3, 2, 8, 8)
    assert torch.equal(method.encoding(x, torch.tensor([0, 0, 0])), x)
    flat = torch.full((1, 2, 8, 8), 0.5)
    # A smoothing operator does not change a constant image, but waves would.
    assert torch.equal(method.encoding(flat, torch.tensor([1])), flat)
    assert method(x).shape == (3, 4)


@pytest.mark.parametrize("label", ["waves", "morphology"])
def test_the_inputs_of_the_side_head_do_not_depend_on_the_label(label: str) -> None:
    inputs_of_head = []
    given = batch()
    for y in (given.y, (given.y + 1) % 4):
        method = small(label=label, inference="head")
        assert method.head is not None
        method.head.register_forward_pre_hook(lambda module, inputs: inputs_of_head.append(inputs[0].clone()))
        (stage,) = method.stages(1)
        method.enter(stage)
        for _ in method.update(Batch(given.x, y, given.index, given.key), stage):
            pass
        method.eval()(given.x)
    in_training, in_prediction, *others = inputs_of_head
    assert len(others) == 2
    assert torch.equal(in_training, in_prediction)
    assert torch.equal(in_training, others[0])


def test_the_neutral_label_favors_no_class() -> None:
    method = small(inference="head")
    x = torch.zeros(1, 2, 8, 8)
    labeled = torch.cat([method.encoding(x, torch.tensor([label])) for label in range(4)])
    assert torch.allclose(method.encoding.neutral(x), labeled.mean(0, keepdim=True), atol=1e-6)


def test_the_side_head_learns_nothing_from_noise() -> None:
    """With the label in its features, the loss would fall to 0; without it, it stays above log C."""
    method = small(inference="head")
    (stage,) = method.stages(1)
    optimizers = Optimizers(method, stage, Settings())
    losses = []
    for step in range(60):
        for group, loss in method.update(batch(32, step), stage):
            optimizers.step((group,), 3e-3)
            if group == "head":
                losses.append(float(loss))
    assert sum(losses[-20:]) / 20 > math.log(4)


def test_the_first_layer_can_keep_its_initial_weights() -> None:
    method = small(first_layer_learns=False)
    (stage,) = method.stages(3)
    assert (stage.blocks, stage.epochs) == ((1, 2), 3)
    groups = [group for group, _ in method.update(batch(), stage)]
    assert groups == ["block1", "block2"]
    assert all(p.grad is None for p in method.blocks[0].parameters())
    with pytest.raises(UserError, match="at least 2 layers"):
        small(depth=1, first_layer_learns=False)


def test_invalid_options_raise_a_user_error() -> None:
    linear = methods["cnn_ff"].unsupported_reason(create_network("mlp", (1, 8, 8), 4), 4)
    assert linear is not None
    assert "conv layers only" in linear
    with pytest.raises(UserError, match="between 0 and 1"):
        small(label_intensity=3)


def test_the_goodness_of_a_wave_depends_on_the_image(digits: DataSet) -> None:
    """The same wave has less goodness on images of other classes, so layers do more than detect the wave."""
    net = create_network("cnn", digits.in_shape, 10, channels=(16, 32), kernel=5, norm="layer")
    method = create_method("cnn_ff", net, 10)
    summary = fit(method, digits, Settings(epochs=5, batch_size=32, learning_rate=3e-3))
    assert summary["read_out_accuracy"] > 0.85
    assert digits.validation is not None
    (whole,) = Batches.in_order(digits.validation, digits.preprocessing, 1000).epoch(0)
    with torch.no_grad():
        goodness = method(whole.x)
    for label, column in enumerate(goodness.T):
        own = whole.y == label
        assert column[own].mean() > column[~own].mean() + column.std() / 2
