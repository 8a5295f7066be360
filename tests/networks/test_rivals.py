"""Networks of the other methods: shapes and parameter counts computed by hand."""

import pytest

from hff.errors import UserError
from hff.networks import Block, create_network


def parameters(blocks: list[Block]) -> int:
    return sum(p.numel() for block in blocks for p in block.parameters())


def outputs(blocks: list[Block]) -> list[tuple[int, ...]]:
    return [block.out_shape for block in blocks]


def test_trifecta() -> None:
    blocks = create_network("trifecta", (4, 32, 32), 10).blocks()
    assert outputs(blocks) == [
        (128, 16, 16),
        (128, 16, 16),
        (256, 8, 8),
        (256, 8, 8),
        (256, 8, 8),
        (512, 4, 4),
    ]
    # Nine weights for each pair of channels, and a gain and a bias of the norm for each input channel.
    ins, outs = [4, 128, 128, 256, 256, 256], [128, 128, 256, 256, 256, 512]
    assert parameters(blocks) == sum(9 * i * o + 2 * i for i, o in zip(ins, outs, strict=True))
    assert {(b.row.norm, b.row.norm_at, b.row.activation) for b in blocks} == {("batch", "input", "relu")}
    large = create_network("trifecta", (4, 32, 32), 10, size="large", width_factor=1 / 64).blocks()
    assert [shape[0] for shape in outputs(large)] == [1, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8]
    assert [shape[1] for shape in outputs(large)] == [32, 16, 16, 16, 16, 8, 8, 8, 8, 4, 4, 4]


def test_channelwise() -> None:
    blocks = create_network("channelwise", (3, 32, 32), 10).blocks()
    assert outputs(blocks) == [(20, 32, 32), (80, 16, 16), (240, 16, 16), (480, 8, 8)]
    assert [b.row.groups for b in blocks] == [1, 10, 1, 10]
    weights = 9 * (3 * 20 + 2 * 80 + 80 * 240 + 24 * 480)
    assert parameters(blocks) == weights + 3 * (20 + 80 + 240 + 480)
    assert {(b.row.norm_at, b.norm.eps) for b in blocks} == {("output", 1e-4)}


def test_channelwise_groups_default_to_the_classes_or_are_given_once_or_for_each_pair() -> None:
    assert [row.groups for row in create_network("channelwise", (3, 32, 32), 5).rows] == [1, 5, 1, 5]
    assert [row.groups for row in create_network("channelwise", (3, 32, 32), 10, groups=4).rows] == [
        1,
        4,
        1,
        4,
    ]
    channels = (60, 120, 240, 400, 800, 1600)
    rows = create_network("channelwise", (3, 32, 32), 100, channels=channels, groups=(20, 20, 100)).rows
    assert [row.groups for row in rows] == [1, 20, 1, 20, 1, 100]


@pytest.mark.parametrize("channels", [(20, 85), (25, 80)])
def test_channelwise_refuses_channels_that_are_not_divisible_by_the_groups(channels: tuple[int, ...]) -> None:
    wrong = next(n for n in channels if n % 10)
    with pytest.raises(UserError, match=f"{wrong} channels are not divisible by 10 groups"):
        create_network("channelwise", (3, 32, 32), 10, channels=channels)


def test_channelwise_refuses_a_wrong_number_of_groups() -> None:
    with pytest.raises(UserError, match="groups has 3 values, but there are 2 pairs"):
        create_network("channelwise", (3, 32, 32), 10, groups=(2, 2, 2))
    with pytest.raises(UserError, match="groups must be one or more positive"):
        create_network("channelwise", (3, 32, 32), 10, groups=0)


def test_simcnn() -> None:
    blocks = create_network("simcnn", (3, 32, 32), 10).blocks()
    assert outputs(blocks) == [(256, 32, 32), (256, 32, 32), (512, 16, 16), (1024, 8, 8), (1024, 8, 8)]
    assert [b.affine.in_channels for b in blocks] == [3, 256, 4 * 256, 4 * 512, 1024]
    pairs = 3 * 256 + 256 * 256 + 1024 * 512 + 2048 * 1024 + 1024 * 1024
    assert parameters(blocks) == 9 * pairs + 256 + 256 + 512 + 1024 + 1024
    normed = create_network(
        "simcnn", (3, 32, 32), 10, widths=(8, 8, 16), downsample_at=(2,), norm="batch"
    ).rows
    assert [(row.norm, row.downsample) for row in normed] == [("batch", 1), ("batch", 1), ("batch", 2)]


def test_simcnn_refuses_odd_maps_and_missing_layers() -> None:
    with pytest.raises(UserError, match="divisible by 2, not 15x15"):
        create_network("simcnn", (3, 30, 30), 10, widths=(4, 4, 4, 4)).blocks()
    with pytest.raises(UserError, match="downsample_at contains 3, but the layers are numbered 0 to 1"):
        create_network("simcnn", (3, 32, 32), 10, widths=(4, 4), downsample_at=(1, 3))


def test_vgg8b_and_vgg11b() -> None:
    blocks = create_network("vgg8b", (3, 32, 32), 10, width_factor=1 / 32).blocks()
    assert outputs(blocks) == [
        (4, 32, 32),
        (8, 16, 16),
        (8, 16, 16),
        (16, 8, 8),
        (16, 4, 4),
        (16, 2, 2),
        (32,),
    ]
    weights = 9 * (3 * 4 + 4 * 8 + 8 * 8 + 8 * 16 + 16 * 16 + 16 * 16) + 16 * 2 * 2 * 32
    assert parameters(blocks) == weights + 3 * (4 + 8 + 8 + 16 + 16 + 16 + 32)
    facts = {(b.row.activation, b.row.norm, b.row.norm_at, b.row.dropout) for b in blocks}
    assert facts == {("leaky_relu", "batch", "preactivation", 0.2)}
    blocks = create_network(
        "vgg11b", (3, 32, 32), 10, width_factor=1 / 32, activation="relu", dropout=0.1
    ).blocks()
    assert [shape[0] for shape in outputs(blocks)] == [4, 4, 4, 8, 8, 16, 16, 16, 16, 32]
    assert [shape[1] for shape in outputs(blocks)[:-1]] == [32, 32, 32, 16, 16, 8, 8, 4, 2]
    assert {(b.row.activation, b.row.dropout) for b in blocks} == {("relu", 0.1)}
    assert [row.width for row in create_network("vgg8b", (3, 32, 32), 10).rows] == [
        128,
        256,
        256,
        512,
        512,
        512,
        1024,
    ]


def test_cnn_ff() -> None:
    blocks = create_network("cnn_ff", (1, 28, 28), 10).blocks()
    assert outputs(blocks) == [(128, 28, 28)] * 3
    convolutions = 49 * (128 + 2 * 128 * 128) + 3 * 128
    assert parameters(blocks) == convolutions + 3 * 2 * 128 * 28 * 28
    assert {(b.row.norm, b.row.norm_at) for b in blocks} == {("layer", "preactivation")}


@pytest.mark.parametrize(
    ("like", "in_shape", "shapes", "weights"),
    [
        (
            "mnist",
            (1, 28, 28),
            [(32, 12, 12), (64, 5, 5), (16, 3, 3), (200,)],
            25 * 32 + 9 * (32 * 64 + 64 * 16) + 144 * 200,
        ),
        (
            "fashion_mnist",
            (1, 28, 28),
            [(64, 12, 12), (128, 5, 5), (64, 3, 3), (128,)],
            25 * 64 + 9 * (64 * 128 + 128 * 64) + 576 * 128,
        ),
        (
            "cifar10",
            (3, 32, 32),
            [(64, 16, 16), (128, 7, 7), (64, 2, 2), (256,)],
            9 * (3 * 64 + 64 * 128 + 128 * 64) + 256 * 256,
        ),
        (
            "cifar100",
            (3, 32, 32),
            [(64, 30, 30), (64, 14, 14), (128, 6, 6), (64, 2, 2), (1024,)],
            9 * (3 * 64 + 64 * 64 + 64 * 128 + 128 * 64) + 256 * 1024,
        ),
    ],
)
def test_dll_cnn(like: str, in_shape: tuple[int, ...], shapes: list[tuple[int, ...]], weights: int) -> None:
    blocks = create_network("dll_cnn", in_shape, 10, like=like).blocks()
    assert outputs(blocks) == shapes
    assert parameters(blocks) == weights
    assert {b.row.activation for b in blocks} == {"tanh"}


def test_dll_cnn_uses_average_pooling_where_the_paper_does() -> None:
    kinds = {
        like: [
            row.pool.kind if row.pool else None
            for row in create_network("dll_cnn", (3, 32, 32), 10, like=like).rows
        ]
        for like in ("mnist", "fashion_mnist", "cifar10", "cifar100")
    }
    assert kinds == {
        "mnist": ["max", "max", None, None],
        "fashion_mnist": ["max", "average", None, None],
        "cifar10": ["max", "max", "average", None],
        "cifar100": [None, "max", "max", "average", None],
    }


def test_noprop() -> None:
    blocks = create_network("noprop", (1, 28, 28), 10).blocks()
    assert outputs(blocks) == [(32, 14, 14), (64, 14, 14), (128, 7, 7), (256,)]
    weights = 9 * (32 + 32 * 64 + 64 * 128) + 128 * 49 * 256
    assert parameters(blocks) == weights + 32 + 64 + 128 + 3 * 256
    assert [b.row.dropout for b in blocks] == [0.2, 0.2, 0.2, 0.0]
    assert [(b.row.activation, b.row.norm) for b in blocks] == [("relu", "none")] * 3 + [
        ("identity", "batch")
    ]
