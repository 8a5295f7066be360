import pytest
import torch

from hff import functional
from hff.batch import Batch
from hff.data import DataSet
from hff.methods import Method, create_method
from hff.methods.ff import ForwardForward
from hff.networks import create_network
from hff.training import Settings, fit


def small(**options: object) -> ForwardForward:
    method = create_method("ff", create_network("mlp", (1, 5, 5), 4, widths=(12, 9, 7)), 4, **options)
    assert isinstance(method, ForwardForward)
    return method


def batch(size: int = 16, step: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(step)
    x = torch.randn(size, 1, 5, 5, generator=draw)
    return Batch(x, torch.randint(0, 4, (size,), generator=draw), torch.arange(size), (0, 0, 0, step))


def test_unit_power_by_hand() -> None:
    squares = functional.unit_power(torch.tensor([[3.0, 4.0]])).square()
    assert torch.allclose(squares, torch.tensor([[0.72, 1.28]]))
    assert torch.equal(functional.unit_power(torch.zeros(2, 3)), torch.zeros(2, 3))


def test_mean_goodness_by_hand() -> None:
    assert functional.mean_goodness(torch.tensor([[[1.0, 2.0], [3.0, 0.0]]])).item() == pytest.approx(3.5)


@pytest.mark.parametrize(("goodness", "sharpness"), [("sum", 1.0), ("mean", 10.0), ("mean", 1.0)])
def test_the_gradient_in_closed_form(goodness: str, sharpness: float) -> None:
    """dL/dW = mean over samples of 2 s (sigma(s (G_neg - theta)) h x^T - sigma(s (theta - G_pos)) h x^T)."""
    method = small(goodness=goodness, sharpness=sharpness, threshold=0.7)
    given = batch()
    h = method.training_inputs(given)
    method.layer_step(0, h, given)
    x = functional.unit_power(h).flatten(1).double()
    affine = method.block(0).affine
    weight, bias = affine.weight.detach().double(), affine.bias.detach().double()
    expected = torch.zeros_like(weight)
    per_unit = 1.0 if goodness == "sum" else 1 / 12
    threshold = 0.7 * 12 if goodness == "sum" else 0.7
    for row, sign in [*((i, -1.0) for i in range(16)), *((i + 16, 1.0) for i in range(16))]:
        a = torch.clamp(weight @ x[row] + bias, min=0)
        good = per_unit * a.square().sum()
        slope = sign * sharpness * torch.sigmoid(sign * sharpness * (good - threshold))
        expected += slope * 2 * per_unit * torch.outer(a, x[row]) / 16
    assert affine.weight.grad is not None
    assert torch.allclose(affine.weight.grad.double(), expected, rtol=1e-4, atol=1e-6)


def test_the_next_layer_does_not_depend_on_the_goodness() -> None:
    method = small().eval()
    x = torch.randn(5, 1, 5, 5)
    before = dict(method.layer_scores(x))
    with torch.no_grad():
        for parameter in method.blocks[0].parameters():
            parameter.mul_(3)
    after = dict(method.layer_scores(x))
    assert torch.allclose(after[0], 9 * before[0], rtol=1e-4)
    assert torch.allclose(after[2], before[2], rtol=1e-4)


def test_all_layers_but_the_first_predict() -> None:
    method = small().eval()
    x = torch.randn(5, 1, 5, 5)
    scores = dict(method.layer_scores(x))
    assert torch.allclose(method(x), (scores[1] + scores[2]) / 2)
    single = create_method("ff", create_network("mlp", (1, 5, 5), 4, widths=(12,)), 4).eval()
    assert torch.allclose(single(x), dict(single.layer_scores(x))[0])
    assert torch.allclose(small(read_out=0).eval()(x), scores[0])


def test_labels_are_appended_to_tabular_inputs() -> None:
    method = create_method("ff", create_network("mlp", (6,), 3, widths=(8,)), 3, label_intensity=2.0)
    assert isinstance(method, ForwardForward)
    written = method.encoding(torch.arange(6.0)[None], torch.tensor([1]))
    assert written.tolist() == [[0, 1, 2, 3, 4, 5, 0, 2, 0]]


def test_the_side_head_starts_at_zero_and_only_it_gets_its_gradients() -> None:
    method = small(inference="head")
    assert method.head is not None
    assert not method.head.weight.any()
    assert method.head.in_features == 9 + 7
    assert (method.passes, small().passes) == (1, 4)
    (stage,) = method.stages(1)
    assert list(method.parameter_groups(stage)) == ["block0", "block1", "block2", "head"]
    groups = {}
    for group, loss in method.update(batch(), stage):
        groups[group] = loss
        if group == "head":
            assert all(p.grad is None for block in method.blocks for p in block.parameters())
            assert method.head.weight.grad is not None
        method.zero_grad(set_to_none=True)
    assert float(groups["head"]) == pytest.approx(torch.log(torch.tensor(4.0)))


def test_the_inputs_of_the_side_head_do_not_depend_on_the_label() -> None:
    method = small(inference="head").eval()
    x = torch.randn(5, 1, 5, 5)
    overwritten = x.clone()
    overwritten.flatten(1)[:, :4] = torch.randn(5, 4)
    assert [layer for layer, _ in method.layer_scores(x)] == [2]
    assert torch.equal(method._neutral_features(x), method._neutral_features(overwritten))


def test_hard_negatives_follow_the_side_head_and_are_never_true() -> None:
    method = small(negatives="hard")
    assert method.head is not None
    with torch.no_grad():
        method.head.bias.copy_(torch.tensor([0.0, 40.0, 0.0, 0.0]))
    given = batch(64)
    wrong = method.wrong(given, method._neutral_features(given.x))
    assert (wrong != given.y).all()
    assert (wrong[given.y != 1] == 1).all()


def test_only_uniform_negatives_are_layer_local() -> None:
    uniform, hard = small(negatives="uniform"), small(negatives="hard")
    assert (uniform.layer_local, uniform.top_signal) == (True, False)
    assert (hard.layer_local, hard.top_signal) == (False, True)


@pytest.mark.parametrize("negatives", ["uniform", "hard"])
def test_the_first_layer_depends_on_upper_layers_only_with_hard_negatives(negatives: str) -> None:
    given = batch(64)

    def gradient(scale: float) -> torch.Tensor:
        method = small(negatives=negatives, inference="head")
        assert method.head is not None
        torch.nn.init.normal_(method.head.weight, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            method.block(2).affine.weight[:4] *= scale
        next(iter(method.update(given, method.stages(1)[0])))
        found = method.block(0).affine.weight.grad
        assert found is not None
        return found

    assert torch.equal(gradient(1.0), gradient(-1.0)) == (negatives == "uniform")


def test_hard_negatives_with_the_side_head_learn_digits(digits: DataSet) -> None:
    net = create_network("mlp", digits.in_shape, 10, widths=(64, 64))
    method: Method = create_method("ff", net, 10, negatives="hard", inference="head")
    summary = fit(method, digits, Settings(epochs=5, batch_size=32, learning_rate=3e-3))
    assert summary["read_out_accuracy"] > 0.85
