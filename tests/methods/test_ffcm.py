"""FFCM: the loss by hand and by loops, margins, views, the two stages and the label overlay."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff import functional
from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.ffcm import FFCM, margins
from hff.modules.labels import one_hot_encoding, wrong_labels
from hff.networks import Network, create_network
from hff.training import Settings, fit

CLASSES = 3
SIZE = 6


def ffcm(table: Network | None = None, **options: object) -> FFCM:
    method = create_method(
        "ffcm", table or create_network("mlp", (5,), CLASSES, widths=(40, 30)), CLASSES, **options
    )
    assert isinstance(method, FFCM)
    return method


def batch(views: int = 1) -> Batch:
    x, *other_views = torch.randn(views, SIZE, 5)
    return Batch(x, torch.arange(SIZE) % CLASSES, torch.arange(SIZE), (0, 0, 0, 0), tuple(other_views))


def by_loops(
    z: list[list[float]], labels: list[int], margin: float, tau: float, far: list[list[float]]
) -> float:
    def cosine(a: list[float], b: list[float]) -> float:
        return sum(p * q for p, q in zip(a, b, strict=True))

    total = 0.0
    for i in range(len(z)):
        positives = {
            j: min(cosine(z[i], z[j]) + margin, 1) for j in range(len(z)) if j != i and labels[j] == labels[i]
        }
        others = [cosine(z[i], z[j]) for j in range(len(z)) if labels[j] != labels[i]]
        others += [cosine(z[i], each) for each in far]
        below = sum(math.exp(s / tau) for s in [*positives.values(), *others])
        total -= sum(math.log(math.exp(s / tau) / below) for s in positives.values()) / max(1, len(positives))
    return total / len(z)


def test_loss_by_hand() -> None:
    z = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    y = torch.tensor([0, 0, 1])
    # The pair of a class has (0.6 + 0.2) / 0.5 = 1.6. The sample of the other class has 0 with the first and
    # 0.8 / 0.5 = 1.6 with the second; it has no pair itself.
    expected = (math.log(1 + math.exp(-1.6)) + math.log(2)) / 3
    assert expected == pytest.approx(0.292349, abs=1e-6)
    assert functional.marginal_contrastive_loss(z, y, 0.2, 0.5).item() == pytest.approx(expected, abs=1e-6)
    # A negative at the first point has cosines 1 and 0.6, so 2 and 1.2; it has no loss itself.
    negatives = torch.tensor([[1.0, 0.0]])
    expected = (math.log(1 + math.exp(-1.6) + math.exp(0.4)) + math.log(2 + math.exp(-0.4))) / 3
    loss = functional.marginal_contrastive_loss(z, y, 0.2, 0.5, negatives)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_loss_equals_loops(margin: float) -> None:
    z, far = F.normalize(torch.randn(9, 4)), F.normalize(torch.randn(5, 4))
    y = torch.tensor([0, 1, 2, 0, 1, 0, 0, 1, 3])
    expected = by_loops(z.tolist(), y.tolist(), margin, 0.15, far.tolist())
    loss = functional.marginal_contrastive_loss(z, y, margin, 0.15, far)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_pairs_within_the_margin_do_not_attract() -> None:
    def loss(cosine: float, margin: float) -> Tensor:
        z = torch.tensor([[1.0, 0, 0], [cosine, math.sqrt(1 - cosine**2), 0], [0, 0, 1]])
        return functional.marginal_contrastive_loss(z, torch.tensor([0, 0, 1]), margin, 0.15)

    assert torch.equal(loss(0.85, 0.2), loss(0.99, 0.2))
    assert loss(0.85, 0.1) > loss(0.99, 0.1)


@pytest.mark.parametrize("labels", [[0], [0, 1, 2]])
def test_batches_without_pairs_have_no_loss_and_no_gradient(labels: list[int]) -> None:
    z = F.normalize(torch.randn(len(labels), 4)).requires_grad_()
    loss = functional.marginal_contrastive_loss(z, torch.tensor(labels), 0.1, 0.15)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_margins_by_hand() -> None:
    assert margins(0.4, 0.1, 3, "linear") == pytest.approx([0.4, 0.25, 0.1])
    assert margins(0.4, 0.1, 3, "cosine") == pytest.approx([0.4, 0.25, 0.1])
    assert margins(0.4, 0.1, 4, "cosine") == pytest.approx([0.4, 0.325, 0.175, 0.1])
    assert margins(0.4, 0.1, 3, "parabolic") == pytest.approx([0.4, 0.175, 0.1])
    assert margins(0.4, 0.1, 3, "exponential") == pytest.approx([0.4, 0.2, 0.1])
    # An exponential schedule also ends at the last margin.
    assert margins(0.8, 0.2, 3, "exponential") == pytest.approx([0.8, 0.4, 0.2])
    assert margins(0.4, 0.1, 1, "linear") == [0.4]


@pytest.mark.parametrize("views", [1, 2])
def test_each_layer_learns_by_the_cosines_of_all_views(views: int) -> None:
    method, given = ffcm(views=views), batch(views)
    assert method.views == views
    h, y = torch.cat([given.x, *given.other_views]), given.y.repeat(views)
    expected = []
    for layer, margin in enumerate((0.4, 0.1)):
        a = torch.relu(F.linear(h, method.block(layer).affine.weight, method.block(layer).affine.bias))
        z = (a / a.norm(dim=1, keepdim=True)).tolist()
        expected.append(by_loops(z, y.tolist(), margin, 0.15, []))
        h = a / a.square().mean(1, keepdim=True).sqrt()
    losses = [loss.item() for _, loss in method.update(given, method.stages(5)[0])]
    assert losses == pytest.approx(expected, rel=1e-4)


def test_epochs_of_both_stages() -> None:
    def spans(epochs: int, **options: object) -> list[int]:
        return [stage.epochs for stage in ffcm(**options).stages(epochs)]

    assert spans(250) == [200, 50]
    assert spans(15) == [12, 3]
    assert spans(4) == [3, 1]
    assert spans(650, head_epochs=0.077) == [600, 50]
    # Each stage has at least one epoch.
    assert spans(1) == [1, 1]


def test_in_the_second_stage_only_the_classifier_learns() -> None:
    method, given = (
        ffcm(create_network("mlp", (5,), CLASSES, widths=(7, 6), norm="batch", dropout=0.5)),
        batch(),
    )
    layers, classifier = method.stages(5)
    assert set(method.parameter_groups(layers)) == {"block0", "block1"}
    assert set(method.parameter_groups(classifier)) == {"classifier"}
    method.enter(classifier)
    assert not any(block.training for block in method.blocks)
    before = {name: buffer.clone() for name, buffer in method.named_buffers()}
    ((group, loss),) = method.update(given, classifier)
    assert group == "classifier"
    assert all(torch.equal(buffer, before[name]) for name, buffer in method.named_buffers())
    assert all(p.grad is None for p in method.blocks.parameters())
    expected = F.cross_entropy(method.eval()(given.x), given.y)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert method.classifier.weight.grad is not None


def test_the_next_layer_and_the_classifier_get_unit_power() -> None:
    method, x = ffcm().eval(), torch.randn(4, 5)
    assert torch.allclose(method.forward_block(0, x).square().mean(1), torch.ones(4), atol=1e-5)
    before = method(x)
    with torch.no_grad():
        for p in method.blocks.parameters():
            p.mul_(10)
    assert torch.allclose(method(x), before, atol=1e-5)


def test_the_loss_of_a_map_uses_its_average() -> None:
    table = create_network("cnn", (1, 8, 8), CLASSES, channels=(4, 6))
    method = ffcm(table)
    assert method.classifier.in_features == 6
    assert ffcm(table, grid=2).classifier.in_features == 6 * 2 * 2
    x, y = torch.randn(SIZE, 1, 8, 8), torch.arange(SIZE) % CLASSES
    loss, out = method.layer_step(0, x, Batch(x, y))
    a = method.block(0).activity(x)
    z = F.normalize(a.mean((2, 3))).tolist()
    assert loss.item() == pytest.approx(by_loops(z, y.tolist(), 0.4, 0.15, []), rel=1e-4)
    assert torch.allclose(out.square().mean((1, 2, 3)), torch.ones(SIZE), atol=1e-5)


def test_inputs_with_wrong_labels_are_negatives() -> None:
    method, given = ffcm(label_overlay=True), batch()
    encoding = one_hot_encoding((5,), CLASSES, 3.0)
    wrong = wrong_labels(given.y, CLASSES, given.uniform(1, "negatives")[:, 0])
    z, far = (
        F.normalize(method.block(0).activity(encoding(given.x, labels))).tolist()
        for labels in (given.y, wrong)
    )
    _, loss = next(iter(method.update(given, method.stages(5)[0])))
    assert loss.item() == pytest.approx(by_loops(z, given.y.tolist(), 0.4, 0.15, far), rel=1e-4)


def test_with_an_overlay_every_label_is_tried() -> None:
    method, given = ffcm(label_overlay=True).eval(), batch()
    encoding = one_hot_encoding((5,), CLASSES, 3.0)

    def match(labels: Tensor) -> Tensor:
        h = encoding(given.x, labels)
        for layer in range(2):
            h = method.forward_block(layer, h)
        return method.classifier(functional.unit_power(h)).gather(1, labels.unsqueeze(1)).squeeze(1)

    assert method.passes == CLASSES
    assert ffcm().passes == 1
    expected = torch.stack([match(torch.full((SIZE,), c)) for c in range(CLASSES)], 1)
    assert torch.allclose(method(given.x), expected, atol=1e-5)
    wrong = wrong_labels(given.y, CLASSES, given.uniform(1, "negatives")[:, 0])
    ((_, loss),) = method.update(given, method.stages(5)[1])
    assert loss.item() == pytest.approx(F.softplus(match(wrong) - match(given.y)).mean().item(), rel=1e-4)


def test_the_label_overlay_learns_digits(digits: DataSet) -> None:
    table = create_network("mlp", digits.in_shape, 10, widths=(64, 64))
    summary = fit(
        create_method("ffcm", table, 10, label_overlay=True), digits, Settings(epochs=4, batch_size=32)
    )
    assert summary["read_out_accuracy"] > 0.5


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="temperature must be positive"):
        ffcm(temperature=0.0)
    for share in (0.0, 1.0):
        with pytest.raises(UserError, match="head_epochs is a share and must be between 0 and 1"):
            ffcm(head_epochs=share)
    with pytest.raises(UserError, match="Margins must not be negative"):
        ffcm(last_margin=-0.1)
    with pytest.raises(UserError, match="nor 0 in an exponential schedule"):
        ffcm(last_margin=0.0, margin_schedule="exponential")
