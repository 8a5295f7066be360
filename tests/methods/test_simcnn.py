import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hff.batch import Batch
from hff.errors import UserError
from hff.methods import Method, create_method
from hff.networks import AffineBlock, create_network
from hff.training import Settings
from hff.training.optimizers import Optimizers

SHAPE = (2, 8, 8)


def small(norm: str = "none", **options: object) -> Method:
    net = create_network("simcnn", SHAPE, 3, widths=(4, 4, 6), downsample_at=(2,), norm=norm)
    return create_method("simcnn", net, 3, **options)


def batch() -> Batch:
    return Batch(torch.randn(9, *SHAPE), torch.arange(9) % 3, torch.arange(9), (0, 0, 0, 0))


def test_loss_and_gradient_of_a_linear_classifier_written_out() -> None:
    method = small(auxiliary_norm="none")
    x, y = batch().x, batch().y
    affine, linear = method.block(0).affine, method.heads[0][-1]
    a = F.relu(F.conv2d(x, affine.weight, affine.bias, padding=1))
    pooled = a.unflatten(3, (2, 4)).unflatten(2, (2, 4)).mean((3, 5))
    scores = pooled.flatten(1) @ linear.weight.T + linear.bias
    expected = (scores.logsumexp(1) - scores[torch.arange(9), y]).mean()
    gradient = torch.autograd.grad(expected, affine.weight)[0]
    loss, output = method.layer_step(0, x, Batch(x, y))
    assert torch.allclose(loss, expected.detach(), atol=1e-6)
    assert torch.allclose(affine.weight.grad, gradient, atol=1e-6)
    assert torch.equal(output, a.detach())


@pytest.mark.parametrize(("layers", "width", "widths"), [(0, None, []), (1, None, [4]), (2, 7, [7, 7])])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_layers_and_widths_of_the_auxiliary_classifier(
    layers: int, width: int | None, widths: list[int], norm: str
) -> None:
    method = small(auxiliary_layers=layers, auxiliary_width=width, auxiliary_norm=norm)
    *hidden, last = method.heads[0]
    blocks = [part for part in hidden if isinstance(part, AffineBlock)]
    assert [block.row.width for block in blocks] == widths
    assert all(block.affine.bias is None and block.row.norm == norm for block in blocks)
    assert any(isinstance(part, nn.BatchNorm2d) for part in hidden) == (norm == "batch")
    assert last.in_features == 4 * ([4, *widths][-1])


def test_hidden_convolutions_come_before_the_pooling() -> None:
    method = small(auxiliary_layers=1, auxiliary_norm="none")
    convolution, linear = method.heads[0][0].affine, method.heads[0][-1]
    a = torch.rand(5, 4, 8, 8)
    hidden = F.relu(F.conv2d(a, convolution.weight, padding=1))
    assert torch.allclose(method.scores(0, a), linear(F.avg_pool2d(hidden, 4).flatten(1)), atol=1e-6)


def test_the_norm_applies_to_the_pooled_map() -> None:
    method = small(auxiliary_norm="batch").train()
    a = torch.rand(5, 4, 8, 8)
    pooled = F.avg_pool2d(a, 4)
    mean, variance = pooled.mean((0, 2, 3), keepdim=True), pooled.var((0, 2, 3), correction=0, keepdim=True)
    normed = (pooled - mean) / (variance + 1e-5).sqrt()
    assert torch.allclose(method.scores(0, a), method.heads[0][-1](normed.flatten(1)), atol=1e-5)


def test_the_pooled_map_keeps_its_size_when_the_map_shrinks() -> None:
    method = small(auxiliary_layers=1)
    assert [block.out_shape for block in method.blocks] == [(4, 8, 8), (4, 8, 8), (6, 4, 4)]
    assert [head[-1].in_features for head in method.heads] == [16, 16, 24]
    assert small(grid=1).heads[2][-1].in_features == 6


def test_fully_connected_layers_have_linear_classifiers() -> None:
    net = create_network("vgg11", (3, 32, 32), 3, width_factor=1 / 32)
    method = create_method("simcnn", net, 3, auxiliary_layers=2)
    kinds = [isinstance(head, nn.Linear) for head in method.heads]
    assert kinds == [False] * 8 + [True] * 3


def test_greedy_training_changes_one_layer_at_a_time() -> None:
    """Neither the weights nor the running statistics of other layers change."""
    method = small(norm="batch", layer_order="greedy", auxiliary_norm="batch")
    stages = method.stages(50)
    assert [(stage.blocks, stage.epochs) for stage in stages] == [((0,), 50), ((1,), 50), ((2,), 50)]
    optimizers = Optimizers(method, stages[1], Settings(learning_rate=0.1, optimizer="sgd", weight_decay=0.1))
    method.enter(stages[1])
    assert [block.training for block in method.blocks] == [False, True, False]
    before = {name: value.clone() for name, value in method.state_dict().items()}
    for group, _ in method.update(batch(), stages[1]):
        assert group == "block1"
        optimizers.step((group,), 0.1)
    changed = {name for name, value in method.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all(name.startswith(("blocks.1.", "heads.1.")) for name in changed)


def test_the_mean_doubles_the_weight_with_each_layer() -> None:
    method = small(read_out="mean").eval()
    x = batch().x
    first, second, third = (scores for _, scores in method.layer_scores(x))
    assert torch.allclose(method(x), (first + 2 * second + 4 * third) / 7, atol=1e-6)
    assert torch.equal(small().eval()(x), third)
    assert torch.equal(small(read_out=0).eval()(x), first)


def test_only_the_classifiers_of_the_read_out_are_computed() -> None:
    method = small(auxiliary_layers=1).eval()
    computed: list[int] = []
    for layer, head in enumerate(method.heads):
        head.register_forward_hook(lambda *_, layer=layer: computed.append(layer))
    method(batch().x)
    assert computed == [2]


@pytest.mark.parametrize("options", [{"auxiliary_layers": -1}, {"grid": 0}, {"auxiliary_width": 0}])
def test_invalid_options_raise_a_user_error(options: dict[str, int]) -> None:
    with pytest.raises(UserError, match="must be at least 1"):
        small(**options)
