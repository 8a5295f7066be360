import math

import pytest
import torch
import torch.nn.functional as F

from hff import functional
from hff.batch import Batch
from hff.errors import UserError
from hff.methods import Method, create_method
from hff.modules.judges import pooling, vectors
from hff.networks import create_network

LOSSES = ["predsim", "pred", "sim"]


def small(widths: tuple[int, ...] = (5, 4), dropout: float = 0.0, **options: object) -> Method:
    net = create_network("mlp", (6,), 3, widths=widths, activation="leaky_relu", dropout=dropout)
    return create_method("local_errors", net, 3, **options)


def convolutional(**options: object) -> Method:
    return create_method("local_errors", create_network("cnn", (2, 8, 8), 3, channels=(4, 5)), 3, **options)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(7, 6), torch.tensor([0, 1, 2, 0, 1, 2, 2])


def test_similarities_by_hand() -> None:
    """Minus their means, the rows are (-1, 0, 1), (2, -2, 0) and (1, 0, -1)."""
    h = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 2.0], [9.0, 8.0, 7.0]])
    expected = torch.tensor([[1.0, -0.5, -1.0], [-0.5, 1.0, 0.5], [-1.0, 0.5, 1.0]])
    assert torch.allclose(functional.similarity_matrix(h), expected, atol=1e-6)
    assert torch.allclose(functional.similarity_matrix(5 * h + 3), expected, atol=1e-6)


def test_similarities_of_labels_by_hand() -> None:
    """Samples of one class have the cosine 1; those of two classes have -1/(C - 1)."""
    y = torch.tensor([0, 2, 2, 1])
    expected = torch.where(y[:, None] == y, 1.0, -1 / 2)
    assert torch.allclose(functional.similarity_matrix(F.one_hot(y, 3).float()), expected, atol=1e-6)


def test_similarity_matching_by_hand() -> None:
    """Opposite features of one class: two of the four entries differ by 2."""
    h = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    loss = functional.similarity_matching_loss(h, targets)
    loss.backward()
    assert torch.allclose(loss, torch.tensor(2.0))
    assert targets.grad is None


def test_a_zero_sample_has_similarity_zero_and_finite_gradients() -> None:
    h = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]], requires_grad=True)
    matrix = functional.similarity_matrix(h)
    matrix.sum().backward()
    assert matrix[0].tolist() == [0.0, 0.0]
    assert torch.isfinite(h.grad).all()


def test_a_constant_channel_has_finite_gradients() -> None:
    h = torch.randn(3, 4, 5, 5)
    h[:, 0] = 0
    h.requires_grad_()
    vectors(h).sum().backward()
    assert torch.isfinite(h.grad).all()


def test_maps_are_compared_by_standard_deviations() -> None:
    h = torch.randn(2, 4, 3, 3)
    deviations = h - h.mean((2, 3), keepdim=True)
    assert torch.allclose(vectors(h), (deviations.square().sum((2, 3)) / 8).sqrt(), atol=1e-6)
    assert torch.allclose(vectors(h + 7), vectors(h), atol=1e-5)
    assert torch.equal(vectors(h[:, :3]), h[:, :3].flatten(1))
    assert torch.equal(vectors(h[:, :, :1, :1]), h[:, :, 0, 0])
    assert torch.equal(vectors(h[:, :, 0, 0]), h[:, :, 0, 0])


@pytest.mark.parametrize(
    ("shape", "most", "left"),
    [
        ((128, 32, 32), 4096, (128, 4, 8)),
        ((128, 32, 32), 2048, (128, 4, 4)),
        ((512, 2, 2), 4096, (512, 2, 2)),
        ((64, 7, 7), 1024, (64, 4, 4)),
        ((64, 7, 7), 2048, (64, 4, 7)),
        ((9, 3, 3), 1, (9, 1, 1)),
        ((900,), 10, (900,)),
    ],
)
def test_pooling_halves_height_and_width_in_turn(
    shape: tuple[int, ...], most: int, left: tuple[int, ...]
) -> None:
    pool, pooled = pooling(shape, most)
    assert pooled == left
    assert pool(torch.zeros(1, *shape)).shape == (1, *left)


def test_pooling_averages() -> None:
    pool, _ = pooling((1, 2, 2), 1)
    assert pool(torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])).item() == 3


@pytest.mark.parametrize(("loss", "weight"), [("predsim", 0.99), ("pred", 0.0), ("sim", 1.0)])
def test_losses_and_gradients_written_out(loss: str, weight: float) -> None:
    """(1 - beta) cross-entropy + beta MSE of cosines, on the activity before dropout."""
    method = small(dropout=0.9, loss=loss)
    x, y = batch()
    block, head = method.block(0), method.heads[0]
    a = F.leaky_relu(x @ block.affine.weight.T + block.affine.bias, 0.01)
    expected = torch.zeros(())
    if loss != "sim":
        torch.nn.init.normal_(head.decoder.weight)
        log_p = torch.log_softmax(a @ head.decoder.weight.T + head.decoder.bias, 1)
        expected = expected - (1 - weight) * log_p[torch.arange(7), y].mean()
    if loss != "pred":
        q = a @ head.compare.weight.T
        q = q - q.mean(1, keepdim=True)
        cosines = F.cosine_similarity(q[:, None], q[None], dim=2)
        labels = torch.where(y[:, None] == y, 1.0, -1 / 2)
        expected = expected + weight * (cosines - labels).square().mean()
    gradient = torch.autograd.grad(expected, block.affine.weight)[0]
    found, _ = method.layer_step(0, x, Batch(x, y))
    assert torch.allclose(found, expected.detach(), atol=1e-6)
    assert torch.allclose(block.affine.weight.grad, gradient, atol=1e-6)


def test_the_prediction_starts_without_gradient_and_the_similarity_does_not() -> None:
    x, y = batch()
    only_prediction = small(loss="pred")
    loss, _ = only_prediction.layer_step(0, x, Batch(x, y))
    assert torch.allclose(loss, torch.tensor(math.log(3)))
    assert only_prediction.block(0).affine.weight.grad.eq(0).all()
    both = small()
    both.layer_step(0, x, Batch(x, y))
    assert both.block(0).affine.weight.grad.ne(0).any()
    assert both(x).eq(0).all()


def test_dropout_applies_to_the_output_only() -> None:
    method = small(widths=(400,), dropout=0.5).train()
    x, y = batch()
    _, output = method.layer_step(0, x, Batch(x, y))
    a = method.features(0, x)
    kept = output != 0
    assert 0.4 < kept.float().mean() < 0.6
    assert torch.allclose(output[kept], 2 * a[kept])
    assert torch.equal(method.eval().forward_block(0, x), a)


def test_the_loss_uses_the_map_before_pooling_and_dropout_drops_channels() -> None:
    method = create_method(
        "local_errors", create_network("cnn", (2, 8, 8), 3, channels=(64,), dropout=0.5), 3
    )
    x, y = torch.randn(3, 2, 8, 8), torch.tensor([0, 1, 2])
    a = method.features(0, x)
    assert a.shape == (3, 64, 8, 8)
    _, output = method.layer_step(0, x, Batch(x, y))
    whole = F.max_pool2d(a, 2)
    alive = (output != 0).flatten(2).any(2)
    assert 0.3 < alive.float().mean() < 0.7
    assert torch.allclose(output, 2 * whole * alive[:, :, None, None])


def test_a_norm_after_the_pooling_has_a_gradient() -> None:
    net = create_network("cnn", (2, 8, 8), 3, channels=(4,), norm="batch", norm_at="output")
    method = create_method("local_errors", net, 3)
    x = torch.randn(6, 2, 8, 8)
    method.layer_step(0, x, Batch(x, torch.arange(6) % 3))
    assert method.block(0).norm.weight.grad.ne(0).any()


def test_the_loss_of_the_classifier_touches_only_the_classifier() -> None:
    method = small()
    x, y = batch()
    torch.nn.init.normal_(method.classifier.weight)
    touched = {}
    for group, _ in method.update(Batch(x, y, torch.arange(7), (0, 0, 0, 0)), method.stages(1)[0]):
        touched[group] = {name for name, p in method.named_parameters() if p.grad is not None}
        method.zero_grad(set_to_none=True)
    assert list(touched) == ["block0", "block1", "classifier"]
    assert touched["classifier"] == {"classifier.weight", "classifier.bias"}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bio", [False, True])
def test_training_reduces_every_loss(loss: str, bio: bool) -> None:
    for method, shape in ((small(loss=loss, bio=bio), (6,)), (convolutional(loss=loss, bio=bio), (2, 8, 8))):
        x, y = torch.randn(12, *shape), torch.arange(12) % 3
        learned = [
            p for group in method.parameter_groups(method.stages(1)[0])["block0"] for p in group.parameters
        ]
        optimizer = torch.optim.Adam(learned, lr=0.01)
        losses = []
        for _ in range(60):
            found, _ = method.layer_step(0, x, Batch(x, y))
            losses.append(float(found))
            optimizer.step()
            optimizer.zero_grad()
        assert losses[-1] < 0.8 * losses[0]


def test_losses_and_scores_of_bio_written_out() -> None:
    method = small(bio=True, code_dim=8, similarity_weight=0.25)
    x, y = batch()
    head = method.heads[0]
    torch.nn.init.normal_(head.decoder.weight)
    a = method.features(0, x)
    logits = a @ head.decoder.weight.T + head.decoder.bias
    signs = (head.codes[y] > 0).float()
    p = torch.sigmoid(logits)
    bce = -(signs * p.log() + (1 - signs) * (1 - p).log()).mean()
    sim = (functional.similarity_matrix(a) - functional.similarity_matrix(head.codes[y])).square().mean()
    assert torch.allclose(method.loss(0, a, Batch(x, y)), 0.75 * bce + 0.25 * sim, atol=1e-6)
    likelihood = -F.binary_cross_entropy_with_logits(
        logits[:, None].expand(-1, 3, -1), (head.codes > 0).float().expand(7, -1, -1), reduction="none"
    ).sum(2)
    assert torch.allclose(method.scores(0, a).log_softmax(1), likelihood.log_softmax(1), atol=1e-5)


def test_bio_sends_the_error_through_random_weights() -> None:
    method = small(bio=True, code_dim=8, loss="pred")
    x, y = batch()
    head, affine = method.heads[0], method.block(0).affine
    z = x @ affine.weight.T + affine.bias
    error = (0.5 - (head.codes[y] > 0).float()) / (7 * 8)
    delta = torch.where(z > 0, 1.0, 0.01) * (error @ head.decoder.feedback)
    method.layer_step(0, x, Batch(x, y))
    assert head.decoder.weight.eq(0).all()
    assert torch.allclose(affine.weight.grad, delta.T @ x, atol=1e-6)


def test_only_the_prediction_of_bio_has_parameters() -> None:
    assert {name for name, _ in small(bio=True).heads[0].named_parameters()} == {
        "decoder.weight",
        "decoder.bias",
    }
    assert not list(small(bio=True, loss="sim").heads[0].parameters())
    assert small(bio=True).heads[0].codes.shape == (3, 128)


def test_layers_have_scores_if_they_predict() -> None:
    x, _ = batch()
    assert [layer for layer, _ in small().eval().layer_scores(x)] == [0, 1]
    assert [layer for layer, _ in small(loss="sim").eval().layer_scores(x)] == [1]
    method = small(read_out=0).eval()
    assert torch.equal(method(x), method.scores(0, method.features(0, x)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity_weight": 1.0}, "between 0 and 1, not 1"),
        ({"decoder_dim": 0}, "at least 1"),
        ({"loss": "sim", "read_out": "mean"}, "only the classifier on top"),
    ],
)
def test_invalid_options_raise_a_user_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        small(**options)
