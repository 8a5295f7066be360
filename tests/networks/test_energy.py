"""Networks of energy-based methods: shapes and parameter counts computed by hand."""

import pytest

from hff.networks import create_network


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
    count = sum(p.numel() for block in blocks for p in block.parameters())
    assert count == weights + sum(shape[0] for shape in shapes)


def test_the_activation_of_vgg5_is_gelu_by_default() -> None:
    default = create_network("vgg5", (3, 32, 32), 10)
    chosen = create_network("vgg5", (3, 32, 32), 10, activation="hard_tanh")
    assert {row.activation for row in default.affine_rows} == {"gelu"}
    assert {row.activation for row in chosen.affine_rows} == {"hard_tanh"}
