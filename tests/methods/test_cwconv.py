"""Channel-wise competition: goodness, both losses, and the stages."""

import math

import pytest
import torch
import torch.nn.functional as F

from hff import functional
from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import Stage, create_method
from hff.methods.cwconv import CwConv
from hff.networks import create_network
from hff.training import Settings, fit

CLASSES = 4
SHAPE = (3, 8, 8)


def cwconv(channels: tuple[int, ...] = (8, 12), classes: int = CLASSES, **options: object) -> CwConv:
    net = create_network("cnn", SHAPE, classes, channels=channels, norm="batch", norm_at="output")
    method = create_method("cwconv", net, classes, **options)
    assert isinstance(method, CwConv)
    return method


def samples(size: int = 6, classes: int = CLASSES) -> Batch:
    return Batch(torch.randn(size, *SHAPE), torch.arange(size) % classes, torch.arange(size), (0, 0, 0, 0))


def test_group_goodness_by_hand() -> None:
    # Two groups of two channels with two positions: (1 + 4 + 0 + 1) / 4 and (9 + 0 + 4 + 1) / 4.
    h = torch.tensor([[[1.0, 2.0], [0.0, -1.0], [3.0, 0.0], [-2.0, 1.0]]])
    assert functional.group_goodness(h, 2).tolist() == [[1.5, 3.5]]
    assert functional.group_goodness(h, 1)[:, 0].equal(functional.mean_goodness(h))


def test_the_gradient_of_the_competition_in_closed_form() -> None:
    method = cwconv()
    h = torch.randn(6, 8, 4, 4, requires_grad=True)
    y = torch.arange(6) % CLASSES
    method.loss(0, h, Batch(h, y)).backward()
    # d loss / d h = (softmax(g) - one-hot) 2 h / (B S H W), with the error of the channel's own group.
    goodness = h.detach().view(6, CLASSES, 2 * 4 * 4).square().mean(2)
    error = goodness.softmax(1) - F.one_hot(y, CLASSES)
    expected = error.repeat_interleave(2, 1)[:, :, None, None] * 2 * h.detach() / (6 * 2 * 4 * 4)
    assert torch.allclose(h.grad, expected, atol=1e-7)


def test_threshold_loss_by_hand() -> None:
    method = cwconv(channels=(8, 4), loss="threshold", threshold=2.0)
    # With one channel per class and a single position the goodness is (1, 4, 0, 9).
    h = torch.tensor([1.0, 2.0, 0.0, -3.0]).view(1, 4, 1, 1)
    expected = math.log1p(math.exp(2 - 4)) + math.log1p(math.exp((1 + 0 + 9) / 3 - 2))
    assert float(method.loss(1, h, Batch(h, torch.tensor([1])))) == pytest.approx(expected)


def test_goodness_and_the_next_layer_use_the_normalized_output() -> None:
    method = cwconv(predictor="goodness")
    batch = samples()
    block = method.block(0)
    raw = F.max_pool2d(F.relu(F.conv2d(batch.x, block.affine.weight, block.affine.bias, padding=1)), 2)
    normed = (raw - raw.mean((0, 2, 3), keepdim=True)) / (
        raw.var((0, 2, 3), unbiased=False, keepdim=True) + block.norm.eps
    ).sqrt()
    method.enter(method.stages(1)[0])
    loss, out = method.layer_step(0, batch.x, batch)
    assert torch.allclose(out, normed, atol=1e-5)
    assert torch.allclose(loss, F.cross_entropy(functional.group_goodness(normed, CLASSES), batch.y))
    # After batch norm, the mean goodness is 1.
    assert float(functional.group_goodness(normed, CLASSES).detach().mean()) == pytest.approx(1, abs=1e-3)


def test_the_predictor_is_a_linear_classifier_or_the_goodness() -> None:
    batch = samples()
    by_goodness = cwconv(predictor="goodness").eval()
    assert by_goodness.classifier is None
    h = by_goodness.block(1).activity(by_goodness.block(0).activity(batch.x))
    assert torch.allclose(by_goodness(batch.x), functional.group_goodness(h, CLASSES))
    softmax = cwconv().eval()
    h = softmax.block(1).activity(softmax.block(0).activity(batch.x)).flatten(1)
    weight, bias = softmax.classifier.weight, softmax.classifier.bias
    # Logits, not probabilities: a second softmax in the cross-entropy would flatten the gradient.
    assert torch.allclose(softmax(batch.x), h @ weight.T + bias, atol=1e-6)
    losses = dict(softmax.update(batch, softmax.stages(1)[0]))
    assert torch.allclose(losses["classifier"], F.cross_entropy(h @ weight.T + bias, batch.y))


def test_the_classifier_has_its_own_learning_rate() -> None:
    method = cwconv(classifier_learning_rate=0.1)
    groups = method.parameter_groups(method.stages(1)[0])
    assert [each.learning_rate for each in groups["classifier"]] == [0.1]
    assert {each.learning_rate for each in groups["block0"]} == {1.0}


def spans(method: CwConv, epochs: int) -> list[tuple[tuple[int, ...], int]]:
    return [(stage.blocks, stage.epochs) for stage in method.stages(epochs)]


def test_by_default_all_layers_learn_in_all_epochs() -> None:
    assert spans(cwconv(), 7) == [((0, 1), 7)]


def test_stages_of_layers_that_end_one_after_the_other() -> None:
    # CIFAR-10 in the paper: epochs 0-11, 0-16, .., 0-25 of 50, then the classifier alone.
    method = cwconv((4, 4, 4), ends=(0.22, 0.32, 0.5))
    assert spans(method, 50) == [((0, 1, 2), 11), ((1, 2), 5), ((2,), 9), ((), 25)]
    assert method.stages(50)[-1].name == "classifier"
    # Without a classifier, there is no last stage.
    assert spans(cwconv((4, 4, 4), ends=(0.22, 0.32, 0.5), predictor="goodness"), 50)[-1] == ((2,), 9)


def test_stages_of_layers_that_start_late() -> None:
    method = cwconv((4, 4, 4), starts=(0, 0.3, 0.6), ends=(0.3, 0.6, 0.85))
    assert spans(method, 100) == [((0,), 30), ((1,), 30), ((2,), 25), ((), 15)]
    overlapping = cwconv((4, 4, 4), starts=(0, 0.2, 0.4), ends=(0.5, 0.5, 1))
    assert spans(overlapping, 10) == [((0,), 2), ((0, 1), 2), ((0, 1, 2), 1), ((2,), 5)]


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_every_layer_has_an_epoch_even_if_there_are_few(epochs: int) -> None:
    stages = cwconv((4, 4, 4), starts=(0, 0, 0.9), ends=(0.1, 0.15, 1)).stages(epochs)
    assert sum(stage.epochs for stage in stages) == epochs
    assert {layer for stage in stages for layer in stage.blocks} == {0, 1, 2}


def test_weights_and_statistics_of_a_frozen_layer_do_not_change() -> None:
    method = cwconv()
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    stage = Stage("layers 1", (1,), 1)
    method.enter(stage)
    assert [group for group, _ in method.update(samples(), stage)] == ["block1", "classifier"]
    assert all(p.grad is None for p in method.blocks[0].parameters())
    changed = {name for name, tensor in method.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert not any(name.startswith("blocks.0.") for name in changed)


def test_layers_that_end_early_learn_digits(digits: DataSet) -> None:
    net = create_network("cnn", digits.in_shape, 10, channels=(10, 20), norm="batch", norm_at="output")
    method = create_method("cwconv", net, 10, ends=(0.3, 0.6))
    summary = fit(method, digits, Settings(epochs=4, batch_size=32, learning_rate=1e-2))
    assert summary["epochs"] == 4
    assert summary["loss"].keys() == {"classifier"}
    assert summary["read_out_accuracy"] > 0.9


@pytest.mark.parametrize("loss", ["competition", "threshold"])
def test_goodness_alone_predicts_digits(loss: str, digits: DataSet) -> None:
    net = create_network("cnn", digits.in_shape, 10, channels=(20, 40), norm="batch", norm_at="output")
    method = create_method("cwconv", net, 10, loss=loss, predictor="goodness")
    summary = fit(method, digits, Settings(epochs=4, batch_size=32, learning_rate=1e-2))
    assert summary["read_out_accuracy"] > 0.8


def test_loss_and_scores_of_classes_that_share_a_group() -> None:
    # Seven classes in groups of 3, 3 and 1, with targets y // 3.
    method = cwconv((6, 7), classes=7, classes_per_group=(3, 1))
    assert method.groups == [3, 7]
    h, y = torch.randn(7, 6, 4, 4), torch.arange(7)
    goodness = functional.group_goodness(h, 3)
    assert torch.allclose(
        method.loss(0, h, Batch(h, y)), F.cross_entropy(goodness, torch.tensor([0, 0, 0, 1, 1, 1, 2]))
    )
    scores = method.scores(0, h)
    assert scores.shape == (7, 7)
    assert torch.equal(scores, goodness[:, [0, 0, 0, 1, 1, 1, 2]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes_per_group": (1, 2)}, "last layer must separate all classes"),
        ({"classes_per_group": (4, 1)}, "from 1 to 3, not 4"),
        ({"classes_per_group": (0, 1)}, "from 1 to 3, not 0"),
        ({"classes_per_group": (1, 1, 1)}, "has 3 numbers, but the network has 2 layers"),
        ({"starts": (0.5,), "ends": (0.5, 1)}, "start of every layer must be below its end"),
        ({"ends": (1.5,)}, "shares from 0 to 1"),
    ],
)
def test_invalid_options_raise_a_user_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        cwconv(**options)


def test_unsupported_networks_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="10 channels are not divisible by 4 groups"):
        cwconv((8, 10))
    with pytest.raises(UserError, match="10 channels are not divisible by 4 groups"):
        cwconv((10, 8))
    assert cwconv((10, 8), classes_per_group=(2, 1)).groups == [2, 4]
    with pytest.raises(UserError, match="layers without channels"):
        create_method("cwconv", create_network("mlp", (5,), CLASSES, widths=(8,)), CLASSES)
