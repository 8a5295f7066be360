"""The networks of the paper, and what holds for every registered network."""

import pytest
import torch

from hff.errors import UserError
from hff.networks import create_network, networks

SMALL: dict[str, dict[str, object]] = {
    "mlp": {"widths": (6, 5)},
    "cnn": {"channels": (4, 5)},
    "channelwise": {"channels": (10, 20)},
    "simcnn": {"widths": (4, 4, 8, 8)},
    "cnn_ff": {"channels": (4, 4)},
}
"""Options that make the networks without a width_factor small."""


@pytest.mark.parametrize("name", networks)
def test_every_block_returns_the_shape_that_its_table_states(name: str) -> None:
    side = 64 if name == "alexnet" else 32
    for in_shape in ((1, side, side), (3, side, side)):
        net = create_network(name, in_shape, 10, **SMALL.get(name, {"width_factor": 1 / 16}))
        h = torch.randn(4, *in_shape)
        for block, shape in zip(net.blocks(), net.out_shapes(), strict=True):
            h = block(h)
            assert h.shape[1:] == block.out_shape == shape
        assert torch.isfinite(h).all()


def test_mlp_has_no_output_layer() -> None:
    blocks = create_network("mlp", (1, 28, 28), 10, widths=(2000, 2000, 2000)).blocks()
    assert [block.out_shape for block in blocks] == [(2000,)] * 3
    assert blocks[0].affine.in_features == 784


def test_cnn_halves_the_map_in_each_layer() -> None:
    blocks = create_network("cnn", (3, 32, 32), 10).blocks()
    assert [b.map_shape for b in blocks] == [(32, 32, 32), (64, 16, 16), (128, 8, 8)]
    assert [b.out_shape for b in blocks] == [(32, 16, 16), (64, 8, 8), (128, 4, 4)]
    assert [b.row.aux_channels for b in blocks] == [128, 64, 32]
    two = create_network("cnn", (1, 28, 28), 10, channels=(32, 64)).blocks()
    assert [b.row.aux_channels for b in two] == [64, 32]


def test_alexnet_matches_the_table_of_the_paper() -> None:
    net = create_network("alexnet", (3, 224, 224), 1000, width_factor=1 / 64)
    assert [b.out_shape[1:] for b in net.blocks()[:5]] == [(27, 27), (13, 13), (13, 13), (13, 13), (6, 6)]
    rows = create_network("alexnet", (3, 224, 224), 1000).rows
    assert [row.width for row in rows] == [64, 192, 384, 256, 256, 4096, 4096, 1000]
    assert [row.aux_channels for row in rows[:5]] == [256, 128, 64, 32, 32]
    assert [(row.kernel, row.stride, row.padding) for row in rows[:3]] == [(11, 4, 2), (5, 1, 2), (3, 1, 1)]


def test_vgg11_and_vgg16_match_the_table_of_the_paper() -> None:
    rows = create_network("vgg11", (3, 32, 32), 100).rows
    assert [row.width for row in rows] == [64, 128, 256, 256, 512, 512, 512, 512, 512, 512, 100]
    assert [row.aux_channels for row in rows[:8]] == [512, 512, 512, 512, 256, 256, 128, 64]
    rows = create_network("vgg16", (3, 224, 224), 1000).rows
    assert [row.width for row in rows[13:]] == [4096, 4096, 1000]
    assert [i for i, row in enumerate(rows) if row.pool] == [1, 3, 6, 9, 12]
    assert [row.aux_channels for row in rows[:13]] == [512] * 6 + [256] * 3 + [128] * 2 + [64] * 2
    small = create_network("vgg16", (3, 224, 224), 1000, width_factor=1 / 64)
    assert small.blocks()[12].out_shape[1:] == (7, 7)


def test_the_networks_of_the_paper_have_no_norm_by_default() -> None:
    for name in ("mlp", "cnn", "alexnet", "vgg11", "vgg16"):
        assert {row.norm for row in create_network(name, (3, 224, 224), 10).affine_rows} == {"none"}


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_place_of_the_norm_is_an_option(name: str) -> None:
    rows = create_network(name, (3, 32, 32), 10, norm="batch", norm_at="output").affine_rows
    assert {(row.norm, row.norm_at) for row in rows} == {("batch", "output")}


@pytest.mark.parametrize(
    ("name", "smallest"),
    [("vgg11", 32), ("alexnet", 63), ("cnn", 8), ("trifecta", 8)],
)
def test_the_error_for_small_images_names_the_smallest_size(name: str, smallest: int) -> None:
    options = {} if name == "cnn" else {"width_factor": 1 / 64}
    create_network(name, (3, smallest, smallest), 10, **options).blocks()
    with pytest.raises(UserError, match=f"{smallest}x{smallest} pixels or more, not {smallest - 1}x"):
        create_network(name, (3, smallest - 1, smallest - 1), 10, **options).blocks()


def test_convolutions_refuse_inputs_that_are_not_images() -> None:
    with pytest.raises(UserError, match=r"needs images \[C, H, W\]"):
        create_network("cnn", (20,), 10).blocks()


def test_the_error_for_an_unknown_name_suggests_the_nearest_one() -> None:
    with pytest.raises(UserError, match="did you mean 'alexnet'"):
        create_network("alexnot", (3, 32, 32), 10)
    with pytest.raises(UserError, match="did you mean 'widths'"):
        create_network("mlp", (64,), 10, width=(3,))


def test_widths_must_be_positive() -> None:
    with pytest.raises(UserError, match="widths must be one or more positive"):
        create_network("mlp", (64,), 10, widths=(3, 0))
    with pytest.raises(UserError, match="hidden must be one or more positive"):
        create_network("vgg11", (3, 32, 32), 10, hidden=0)
    with pytest.raises(UserError, match="width_factor must be above 0, not 0"):
        create_network("vgg11", (3, 32, 32), 10, width_factor=0.0)


@pytest.mark.parametrize(
    ("in_shape", "widths"), [((1, 8, 2**62), (12,)), ((64,), (2**62, 10)), ((64,), (2**40, 2**40))]
)
def test_a_network_whose_size_overflows_is_too_large(
    in_shape: tuple[int, ...], widths: tuple[int, ...]
) -> None:
    reason = create_network("mlp", in_shape, 10, widths=widths).too_large()
    assert reason == "Network 'mlp' has more parameters than any machine can hold; choose a smaller one."
