import pytest
import torch
import torch.nn.functional as F

from hff.batch import Batch
from hff.methods import create_method
from hff.networks import create_network


def test_the_gradients_written_out() -> None:
    """dM = (p - e_y) a^T and dW = [relu'(z) * M^T (p - e_y)] x^T, means over samples."""
    method = create_method("mono_forward", create_network("mlp", (6,), 3, widths=(5, 4)), 3)
    x, y = torch.randn(7, 6), torch.tensor([0, 1, 2, 0, 1, 2, 2])
    loss, output = method.layer_step(0, x, Batch(x, y))
    affine, projection = method.block(0).affine, method.heads[0].project[0]
    z = x @ affine.weight.T + affine.bias
    a = z.clamp_min(0)
    p = torch.softmax(a @ projection.weight.T, 1)
    error = (p - torch.eye(3)[y]) / 7
    assert projection.bias is None
    assert torch.allclose(loss, -p[torch.arange(7), y].log().mean())
    assert torch.allclose(projection.weight.grad, error.T @ a, atol=1e-6)
    delta = (z > 0) * (error @ projection.weight)
    assert torch.allclose(affine.weight.grad, delta.T @ x, atol=1e-6)
    assert torch.allclose(affine.bias.grad, delta.sum(0), atol=1e-6)
    assert torch.equal(output, a.detach())
    assert not output.requires_grad


@pytest.mark.parametrize(("grid", "inputs"), [(0, 4 * 6 * 6), (1, 4), (2, 4 * 4), (9, 4 * 6 * 6)])
def test_scores_of_a_map_pooled_to_a_grid(grid: int, inputs: int) -> None:
    method = create_method("mono_forward", create_network("cnn", (1, 12, 12), 3, channels=(4,)), 3, grid=grid)
    assert method.heads[0].project[0].in_features == inputs
    h = torch.randn(2, 4, 6, 6)
    scores = method.scores(0, h)
    pooled = F.adaptive_avg_pool2d(h, grid) if 0 < grid < 6 else h
    assert torch.allclose(scores, pooled.flatten(1) @ method.heads[0].project[0].weight.T, atol=1e-6)
