"""SymBa: the goodness gap of pairs, class codes, hard negatives."""

import math

import pytest
import torch
import torch.nn.functional as F

from hff import functional
from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import create_method
from hff.methods.symba import SymBa
from hff.modules.labels import ClassCodes
from hff.networks import create_network
from hff.training import Settings, fit

CLASSES = 4


def mlp(shape: tuple[int, ...] = (5,), dropout: float = 0.0, norm: str = "none", **options: object) -> SymBa:
    net = create_network("mlp", shape, CLASSES, widths=(7, 6, 8), dropout=dropout, norm=norm)
    method = create_method("symba", net, CLASSES, seed=0, **{"code_length": 12, **options})
    assert isinstance(method, SymBa)
    return method


def batch(shape: tuple[int, ...] = (5,), size: int = 16) -> Batch:
    return Batch(torch.randn(size, *shape), torch.arange(size) % CLASSES, torch.arange(size), (0, 0, 0, 0))


def rms(h: torch.Tensor) -> torch.Tensor:
    return h / h.square().mean(1, keepdim=True).sqrt()


def test_loss_and_its_gradients_by_hand() -> None:
    # alpha = 4, gaps log(3) / 4 and 0: log(1 + 1/3) and log 2; sigmoid(-alpha gap) = 1/4 and 1/2.
    positive = torch.tensor([1 + math.log(3) / 4, 5.0], requires_grad=True)
    negative = torch.tensor([1.0, 5.0], requires_grad=True)
    loss = functional.symmetric_pair_loss(positive, negative, 4.0)
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)
    loss.backward()
    assert positive.grad is not None
    assert negative.grad is not None
    assert positive.grad.tolist() == pytest.approx([-4 * 0.25 / 2, -4 * 0.5 / 2])
    assert torch.equal(positive.grad, -negative.grad)


def test_the_gradient_of_a_layer_in_closed_form() -> None:
    """dL/dW = (2 alpha / (B D)) sum_i s_i (h_neg u_neg^T - h_pos u_pos^T), s_i = sigmoid(-alpha gap_i)."""
    method = mlp(sharpness=3.0)
    given = batch()
    h = method.training_inputs(given)
    method.layer_step(0, h, given)
    affine = method.block(0).affine
    with torch.no_grad():
        u = rms(h)
        a = F.relu(u @ affine.weight.T + affine.bias)
        size, width = len(h) // 2, a.shape[1]
        good = a.square().mean(1)
        s = torch.sigmoid(-3.0 * (good[:size] - good[size:]))
        sign = torch.cat([-s, s]) * 2 * 3.0 / (size * width)
        expected = (sign[:, None] * a).T @ u
    assert affine.weight.grad is not None
    assert torch.allclose(affine.weight.grad, expected, atol=1e-6)


def test_pairs_differ_only_in_the_code() -> None:
    method = mlp((1, 3, 3))
    given = batch((1, 3, 3))
    positive, negative = method.training_inputs(given).chunk(2)
    assert positive.shape == (16, 9 + 12)
    assert torch.equal(positive[:, :9], given.x.flatten(1))
    assert torch.equal(negative[:, :9], given.x.flatten(1))
    assert isinstance(method.encoding, ClassCodes)
    assert torch.equal(positive[:, 9:], method.encoding.codes[given.y])
    assert (positive[:, 9:] != negative[:, 9:]).any(dim=1).all()


def test_the_loss_depends_only_on_the_gaps_of_pairs() -> None:
    """There is no threshold: adding the same goodness to both halves of a pair changes nothing."""
    method = mlp()
    positive, negative = torch.rand(5), torch.rand(5)
    level = method.pair_loss(0, positive + 7, negative + 7)
    assert torch.allclose(level, method.pair_loss(0, positive, negative), atol=1e-5)
    shuffled = method.pair_loss(0, positive, negative.roll(1))
    assert not torch.allclose(shuffled, method.pair_loss(0, positive, negative))


def test_codes_are_binary_saved_and_not_trained() -> None:
    method = mlp(code_length=400, code_density=0.25, label_intensity=2.0)
    codes = method.state_dict()["encoding.codes"]
    assert codes.shape == (CLASSES, 400)
    assert set(codes.unique().tolist()) == {0.0, 1.0}
    assert 0.15 < float(codes.mean()) < 0.35
    assert all("encoding" not in name for name, _ in method.named_parameters())
    assert torch.equal(method.training_inputs(batch())[:16, 5:].unique(), torch.tensor([0.0, 2.0]))


def test_one_hot_labels_overwrite_pixels_or_are_appended() -> None:
    image = mlp((1, 4, 4), label="one_hot", label_intensity=3.0)
    positive = image.training_inputs(batch((1, 4, 4)))[:16]
    assert torch.equal(positive.flatten(1)[:, :CLASSES], 3 * torch.eye(CLASSES).repeat(4, 1))
    table = mlp(label="one_hot", label_intensity=3.0)
    assert table.block(0).in_shape == (5 + CLASSES,)


def scores_by_hand(method: SymBa, x: torch.Tensor, label: int, *, every_layer: bool) -> list[torch.Tensor]:
    """The goodness [B] of one label in every layer."""
    assert isinstance(method.encoding, ClassCodes)
    code = method.encoding.scale * method.encoding.codes[label].expand(len(x), -1)
    h = torch.cat([x, code], 1)
    found = []
    for block in method.blocks:
        h = F.relu(rms(h) @ block.affine.weight.T + block.affine.bias)
        found.append(h.square().mean(1))
        if every_layer:
            h = torch.cat([rms(h), code], 1)
    return found


@pytest.mark.parametrize("inject", ["input", "every_layer"])
def test_scores_are_the_mean_squares_with_each_code(inject: str) -> None:
    method = mlp(inject=inject, label_intensity=1.5).eval()
    x = torch.randn(6, 5)
    layers = [scores for _, scores in method.layer_scores(x)]
    for label in range(CLASSES):
        expected = scores_by_hand(method, x, label, every_layer=inject == "every_layer")
        for scores, other in zip(layers, expected, strict=True):
            assert torch.allclose(scores[:, label], other, atol=1e-5)
    assert torch.allclose(method(x), torch.stack(layers).mean(0))


def test_every_layer_gets_the_code_of_the_input() -> None:
    method = mlp(inject="every_layer")
    given = batch()
    h = method.training_inputs(given)
    _, above = method.layer_step(0, h, given)
    assert method.block(1).in_shape == (7 + 12,)
    assert torch.equal(above[:, 7:], h[:, 5:])
    assert torch.equal(above, method.forward_block(0, h))
    assert not above.requires_grad


def test_hard_negatives_are_drawn_in_proportion_to_the_root_of_the_goodness() -> None:
    method = mlp(negatives="hard").eval()
    size = 4000
    x, y = torch.randn(1, 5).expand(size, 5), torch.zeros(size, dtype=torch.long)
    wrong = method.negatives(Batch(x, y, torch.arange(size), (0,)))
    good = torch.stack([s for _, s in method.layer_scores(x[:1])]).sum(0)[0]
    shares = good[1:].sqrt() / good[1:].sqrt().sum()
    counts = torch.bincount(wrong, minlength=CLASSES) / size
    assert counts[0] == 0
    assert torch.allclose(counts[1:], shares, atol=0.03)


def test_uniform_negatives_are_uniform_over_the_wrong_labels() -> None:
    size = 4000
    given = Batch(torch.randn(size, 5), torch.full((size,), 2), torch.arange(size), (0,))
    counts = torch.bincount(mlp().negatives(given), minlength=CLASSES) / size
    assert counts[2] == 0
    assert torch.allclose(counts[[0, 1, 3]], torch.full((3,), 1 / 3), atol=0.03)


def test_drawing_hard_negatives_has_no_side_effects() -> None:
    """The random state, the statistics of batch norms and the training modes do not change."""
    method = mlp(negatives="hard", dropout=0.5, norm="batch", layer_order="greedy")
    method.enter(method.stages(1)[1])
    statistics = method.block(1).norm.running_mean.clone()
    given = batch()
    state = torch.random.get_rng_state()
    method.negatives(given)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.equal(statistics, method.block(1).norm.running_mean)
    assert [block.training for block in method.blocks] == [False, True, False]
    assert all(p.grad is None for p in method.parameters())


def test_hard_negatives_of_a_network_without_activity_are_wrong_labels() -> None:
    method = mlp(negatives="hard").eval()
    for parameter in method.parameters():
        torch.nn.init.zeros_(parameter)
    given = batch()
    assert (method.negatives(given) != given.y).all()


@pytest.mark.parametrize(
    "options",
    [
        {"label": "one_hot", "label_intensity": 3.0},
        {"inject": "every_layer"},
        {"negatives": "hard"},
        {"layer_order": "greedy"},
    ],
)
def test_options_learn_digits(options: dict[str, object], digits: DataSet) -> None:
    net = create_network("mlp", digits.in_shape, 10, widths=(64, 64))
    summary = fit(create_method("symba", net, 10, **options), digits, Settings(epochs=4, batch_size=32))
    assert summary["read_out_accuracy"] > 0.8


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="set label to codes"):
        mlp(label="one_hot", inject="every_layer")
    with pytest.raises(UserError, match="sharpness must be greater than 0"):
        mlp(sharpness=0.0)
    with pytest.raises(UserError, match="SymBa trains linear layers only"):
        create_method("symba", create_network("cnn", (1, 8, 8), CLASSES), CLASSES)
