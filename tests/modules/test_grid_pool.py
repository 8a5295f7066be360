"""Average pooling to a grid, with its own backward pass."""

import pytest
import torch
import torch.nn.functional as F

from hff.modules.grid_pool import GridPool, grid_pool


@pytest.mark.parametrize("size", [(8, 8), (7, 7), (4, 6), (14, 9), (4, 4)])
@pytest.mark.parametrize("cells", [(4, 4), (1, 1), (2, 3)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_it_is_adaptive_average_pooling(
    size: tuple[int, int], cells: tuple[int, int], memory_format: torch.memory_format
) -> None:
    torch.manual_seed(0)
    h = torch.randn(2, 3, *size, dtype=torch.float64).to(memory_format=memory_format)
    slope = torch.randn(2, 3, *cells, dtype=torch.float64)
    found = []
    for pool in (GridPool(cells), lambda x: F.adaptive_avg_pool2d(x, cells)):
        at = h.clone().requires_grad_()
        out = pool(at)
        out.backward(slope)
        found.append((out.detach(), at.grad))
    torch.testing.assert_close(*found)


def test_second_derivatives() -> None:
    h = torch.randn(1, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: grid_pool(x, (2, 3)).square(), h)
