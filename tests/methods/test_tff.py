from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional as F

from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.tff import Trifecta
from hff.networks import create_network
from hff.training import Settings, fit
from hff.training.optimizers import Optimizers

BATCH_NORM = {"norm": "batch", "norm_at": "input", "bias": False}


def small(depth: int = 4, **options: object) -> Trifecta:
    net = create_network("cnn", (2, 6, 6), 4, channels=(5,) * depth, pool=1, **BATCH_NORM)
    method = create_method("tff", net, 4, **options)
    assert isinstance(method, Trifecta)
    return method


def batch(step: int = 0, epoch: int = 0, size: int = 8) -> Batch:
    draw = torch.Generator().manual_seed(step)
    x = torch.randn(size, 2, 6, 6, generator=draw)
    return Batch(x, torch.randint(0, 4, (size,), generator=draw), torch.arange(size), (0, 0, epoch, step))


def updates(method: Trifecta, given: Batch) -> Iterator[tuple[str, set[str]]]:
    """Each group with the parts of the method that have gradients at that point."""
    (stage,) = method.stages(1)
    method.enter(stage)
    for group, _ in method.update(given, stage):
        touched = {name for name, p in method.named_parameters() if p.grad is not None}
        yield group, {name.rsplit(".", 2)[0] if "blocks" in name else name for name in touched}
        method.zero_grad(set_to_none=True)


@pytest.mark.parametrize(
    ("depth", "step", "windows"),
    [
        (4, 0, [(0, 1), (2, 3)]),
        (4, 1, [(0,), (1, 2)]),
        (5, 0, [(0, 1), (2, 3)]),
        (5, 1, [(0,), (1, 2), (3, 4)]),
        (2, 1, [(0,)]),
        (1, 0, [(0,)]),
        (1, 1, [(0,)]),
    ],
)
def test_gradients_stay_in_the_windows(depth: int, step: int, windows: list[tuple[int, ...]]) -> None:
    found = list(updates(small(depth), batch(step)))
    assert [group for group, _ in found] == [f"block{window[-1]}" for window in windows]
    for (_, touched), window in zip(found, windows, strict=True):
        labels = {"encoding.table"} if window == (0,) else set()
        assert touched == {f"blocks.{layer}" for layer in window} | labels


def test_windows_shift_with_every_batch_and_every_epoch() -> None:
    method = small()
    ends = [[list(method.window_ends((7, 0, epoch, step))) for step in range(3)] for epoch in range(2)]
    even, odd = [1, 3], [0, 2]
    assert ends == [[even, odd, even], [odd, even, odd]]


def test_without_overlap_every_layer_learns_alone() -> None:
    found = list(updates(small(overlap=False), batch()))
    assert found == [
        ("block0", {"blocks.0", "encoding.table"}),
        ("block1", {"blocks.1"}),
        ("block2", {"blocks.2"}),
        ("block3", {"blocks.3"}),
    ]


def test_the_gradient_of_a_window_written_out() -> None:
    """Against autograd on the equations."""
    method = small(depth=2, sharpness=3.0)
    given = batch()
    (stage,) = method.stages(1)
    method.enter(stage)
    wrong = method.negatives(given)
    weights = [method.block(layer).affine.weight.detach().clone().requires_grad_() for layer in (0, 1)]
    images = method.encoding.table.detach().view(4, 1, 6, 6)
    h = torch.cat([torch.cat([given.x, images[y]], 1) for y in (given.y, wrong)])
    for weight in weights:
        # Positives and negatives share the statistics.
        h = F.conv2d(F.batch_norm(h, None, None, training=True), weight, padding=1).relu()
    positive, negative = (h**2).mean((1, 2, 3)).chunk(2)
    loss = torch.log(1 + torch.exp(-3 * (positive - negative))).mean()
    loss.backward()
    ((group, found),) = method.update(given, stage)
    assert group == "block1"
    assert torch.allclose(found, loss.detach())
    for layer, weight in enumerate(weights):
        gradient = method.block(layer).affine.weight.grad
        assert gradient is not None
        assert weight.grad is not None
        assert torch.allclose(gradient, weight.grad, atol=1e-6)


def test_a_layer_has_two_optimizers_with_separate_moments() -> None:
    method = small(depth=3)
    (stage,) = method.stages(1)
    optimizers = Optimizers(method, stage, Settings())
    method.enter(stage)
    for step in range(2):
        for group, _ in method.update(batch(step), stage):
            optimizers.step((group,), 1e-3)
    state = optimizers.state()
    weight = "blocks.1.affine.weight"
    first, second = (state[f"block{layer}/{weight}/exp_avg"] for layer in (1, 2))
    assert not torch.allclose(first, second)
    assert {float(state[f"block{layer}/{weight}/step"]) for layer in (1, 2)} == {1.0}
    assert "block0/encoding.table/exp_avg" in state
    assert "block1/encoding.table/exp_avg" not in state
    assert all(p.grad is None for p in method.parameters())


def test_labels_are_a_learned_channel_or_appended_one_hot() -> None:
    method = small()
    assert method.block(0).in_shape == (3, 6, 6)
    assert method.encoding.table.requires_grad
    table = create_method("tff", create_network("mlp", (6,), 3, widths=(8, 8)), 3)
    assert isinstance(table, Trifecta)
    assert table.encoding(torch.arange(6.0)[None], torch.tensor([1])).tolist() == [
        [0, 1, 2, 3, 4, 5, 0, 1, 0]
    ]


def test_the_next_layer_gets_the_length_of_the_activity() -> None:
    """Twice the activity of the first layer gives four times the goodness of the second."""
    net = create_network("mlp", (5,), 3, widths=(6, 6), bias=False)
    method = create_method("tff", net, 3).eval()
    x = torch.randn(4, 5)
    before = dict(method.layer_scores(x))
    with torch.no_grad():
        method.block(0).affine.weight.mul_(2)
    assert torch.allclose(dict(method.layer_scores(x))[1], 4 * before[1], rtol=1e-4)


def test_the_last_layers_predict_by_their_mean_goodness() -> None:
    x = torch.randn(3, 2, 6, 6)
    method = small().eval()
    h = torch.cat([x, method.encoding.table[2].view(1, 1, 6, 6).expand(3, -1, -1, -1)], 1)
    for layer in range(4):
        h = method.block(layer)(h)
    assert torch.allclose(method(x)[:, 2], h.square().mean((1, 2, 3)), rtol=1e-4)
    scores = dict(method.layer_scores(x))
    assert torch.allclose(small(ensemble=3).eval()(x), (scores[1] + scores[2] + scores[3]) / 3)


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="ensemble must be 1 to 4"):
        small(ensemble=5)
    with pytest.raises(UserError, match="sharpness must be greater than 0"):
        small(sharpness=0)


@pytest.mark.parametrize("overlap", [True, False])
def test_convolutions_learn_digits(overlap: bool, digits: DataSet) -> None:
    net = create_network("cnn", digits.in_shape, 10, channels=(16, 32), **BATCH_NORM)
    summary = fit(
        create_method("tff", net, 10, overlap=overlap),
        digits,
        Settings(epochs=5, batch_size=32, learning_rate=3e-3),
    )
    assert summary["read_out_accuracy"] > 0.85
    assert list(summary["loss"]) == ["block0", "block1"]
