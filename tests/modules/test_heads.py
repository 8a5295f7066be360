import pytest
import torch

from hff.errors import UserError
from hff.modules.heads import Head


def test_pooling_first_gives_the_same_result_as_the_papers_order() -> None:
    head = Head((6, 8, 8), grid=1, channels=4)
    linear = head.project[0]
    maps = torch.randn(3, 6, 8, 8)
    convolved = torch.nn.functional.conv2d(maps, linear.weight[:, :, None, None], linear.bias)
    assert torch.allclose(head(maps), convolved.mean((2, 3)), atol=1e-6)


def test_head_dimensions() -> None:
    maps = torch.randn(3, 6, 8, 8)
    for grid, channels, hidden, dim in [
        (1, 0, 0, 6),
        (4, 0, 0, 96),
        (4, 5, 0, 5),
        (2, 5, 7, 5),
        (2, 0, 7, 7),
        (9, 0, 0, 384),
        (0, 0, 0, 384),
    ]:
        head = Head((6, 8, 8), grid=grid, channels=channels, hidden=hidden)
        assert head.dim == dim == head(maps).shape[1]
    with pytest.raises(UserError, match="must not be negative"):
        Head((6, 8, 8), grid=-1, channels=1)


def test_a_vector_is_not_pooled_and_the_bias_is_optional() -> None:
    head = Head((7,), grid=4, channels=3, bias=False)
    x = torch.randn(2, 7)
    assert torch.equal(head(x), x @ head.project[0].weight.T)
    assert torch.equal(Head((7,), grid=1, channels=0)(x), x)
