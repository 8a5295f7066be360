"""Networks of direct feedback alignment: shapes and parameter counts computed by hand."""

import pytest

from hff.networks import Pool, create_network


@pytest.mark.parametrize(("padding", "sides"), [(0, (15, 7, 3)), (1, (16, 8, 4))])
def test_the_network_of_cifar10(padding: int, sides: tuple[int, ...]) -> None:
    blocks = create_network("direct_feedback", (3, 32, 32), 10, pool_padding=padding).blocks()
    maps = [(width, side, side) for width, side in zip((96, 128, 256), sides, strict=True)]
    assert [block.out_shape for block in blocks] == [*maps, (2048,), (2048,)]
    flat = 256 * sides[-1] ** 2
    weights = 25 * (3 * 96 + 96 * 128 + 128 * 256) + flat * 2048 + 2048 * 2048
    biases = 96 + 128 + 256 + 2048 + 2048
    assert sum(p.numel() for block in blocks for p in block.parameters()) == weights + biases
    assert {block.row.activation for block in blocks} == {"tanh"}


def test_the_network_of_mnist() -> None:
    net = create_network("direct_feedback", (1, 28, 28), 10, like="mnist", pool_padding=1)
    assert net.out_shapes() == [(32, 28, 28), (64, 14, 14), (128,)]
    assert [row.pool for row in net.affine_rows] == [None, Pool(3, 2, 1), None]
    assert {row.kernel for row in net.affine_rows[:2]} == {3}


def test_dropout_applies_to_the_fully_connected_layers_only() -> None:
    net = create_network(
        "direct_feedback", (3, 32, 32), 10, dropout=0.25, activation="relu", width_factor=1 / 32
    )
    assert [row.dropout for row in net.affine_rows] == [0, 0, 0, 0.25, 0.25]
    assert [row.width for row in net.rows] == [3, 4, 8, 64, 64]
    assert {row.activation for row in net.affine_rows} == {"relu"}
