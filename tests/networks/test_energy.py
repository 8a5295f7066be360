"""The tables of energy-based rules against shapes and parameter counts worked by hand."""

import pytest
import torch

from hff.config import fields_of
from hff.networks import AffineBlock, create_network, energy, networks


def parameters(blocks: list[AffineBlock]) -> int:
    return sum(p.numel() for block in blocks for p in block.parameters())


def test_every_table_is_registered_and_explains_itself() -> None:
    ours = [name for name, table in networks.items() if table.__module__ == energy.__name__]
    assert ours == ["equilibrium_cnn", "vgg5"]
    for name in ours:
        assert all(field.help and not field.required for field in fields_of(networks[name]))


@pytest.mark.parametrize(
    ("name", "options", "in_shape", "shapes", "weights"),
    [
        ("equilibrium_cnn", {"like": "mnist"}, (1, 28, 28), [(32, 12, 12), (64, 4, 4)], 25 * (32 + 32 * 64)),
        (
            "equilibrium_cnn",
            {},
            (3, 32, 32),
            [(128, 16, 16), (256, 8, 8), (512, 4, 4), (512, 1, 1)],
            9 * (3 * 128 + 128 * 256 + 256 * 512 + 512 * 512),
        ),
        (
            "vgg5",
            {},
            (3, 32, 32),
            [(128, 16, 16), (256, 8, 8), (512, 4, 4), (512, 2, 2)],
            9 * (3 * 128 + 128 * 256 + 256 * 512 + 512 * 512),
        ),
    ],
)
def test_shapes_and_parameters(
    name: str,
    options: dict[str, str],
    in_shape: tuple[int, ...],
    shapes: list[tuple[int, ...]],
    weights: int,
) -> None:
    blocks = create_network(name, in_shape, 10, **options).blocks()
    assert [block.out_shape for block in blocks] == shapes
    assert parameters(blocks) == weights + sum(shape[0] for shape in shapes)
    h = torch.randn(2, *in_shape)
    for block in create_network(name, in_shape, 10, width_factor=1 / 32, **options).blocks():
        h = block(h)
    assert h.shape == (2, shapes[-1][0] // 32, *shapes[-1][1:])


def test_vgg5_is_gelu_unless_told_otherwise() -> None:
    assert {row.activation for row in create_network("vgg5", (3, 32, 32), 10).rows} == {"gelu"}
    assert {
        row.activation for row in create_network("vgg5", (3, 32, 32), 10, activation="hard_tanh").rows
    } == {"hard_tanh"}
