"""Residual networks: shapes, parameter counts, shortcuts, errors, and training with HFF."""

import pytest
import torch
from torch import Tensor, nn

from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import Method, create_method
from hff.networks import ResidualBlock, ResidualRow, create_network
from hff.training import Settings, fit


@pytest.mark.parametrize(
    ("depth", "blocks", "stages"),
    [
        (20, 3, [(16, 32, 32), (32, 16, 16), (64, 8, 8)]),
        (18, 2, [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]),
    ],
)
def test_stages_and_strides(depth: int, blocks: int, stages: list[tuple[int, ...]]) -> None:
    net = create_network("resnet", (3, 32, 32), 10, depth=depth)
    assert net.out_shapes() == [stages[0], *(shape for shape in stages for _ in range(blocks))]
    assert [row.kind for row in net.rows] == ["conv"] + ["residual"] * blocks * len(stages)
    strides = [row.stride for row in net.rows if isinstance(row, ResidualRow)]
    later_stages = [2] + [1] * (blocks - 1)
    assert strides == [1] * blocks + later_stages * (len(stages) - 1)


def test_resnet20_has_the_published_number_of_parameters() -> None:
    method = create_method("backprop", create_network("resnet", (3, 32, 32), 10), 10, head="pool")
    assert sum(p.numel() for p in method.parameters()) == pytest.approx(0.27e6, rel=0.02)


def test_the_shortcut_is_the_identity_where_the_shape_stays_the_same() -> None:
    block = ResidualBlock(ResidualRow(4), (4, 6, 6)).eval()
    assert isinstance(block.shortcut, nn.Identity)
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 6, 6)
    assert torch.equal(block(x), x.relu())
    for row in (ResidualRow(8), ResidualRow(4, stride=2)):
        changed = ResidualBlock(row, (4, 6, 6))
        assert not isinstance(changed.shortcut, nn.Identity)
        assert changed(x).shape[1:] == changed.out_shape


@pytest.mark.parametrize("depth", [6, 19, 21])
def test_a_wrong_depth_is_refused(depth: int) -> None:
    with pytest.raises(UserError, match=f"must be 18 or .*, not {depth}"):
        create_network("resnet", (3, 32, 32), 10, depth=depth)


def test_inputs_that_are_too_small_or_not_images_are_refused() -> None:
    create_network("resnet", (3, 3, 3), 10).blocks()
    with pytest.raises(UserError, match="'resnet' needs images of 3x3 pixels or more, not 2x2"):
        create_network("resnet", (3, 2, 2), 10).blocks()
    with pytest.raises(UserError, match=r"needs images \[C, H, W\], but the input has shape \[20\]"):
        ResidualRow(4).build((20,))


def small_resnet(data: DataSet) -> Method:
    return create_method("hff", create_network("resnet", data.in_shape, 10, depth=8, width_factor=0.5), 10)


def test_hff_trains_a_resnet_on_digits(digits: DataSet) -> None:
    summary = fit(small_resnet(digits), digits, Settings(epochs=3, batch_size=64, learning_rate=3e-3))
    assert summary["read_out_accuracy"] > 0.8


def test_hff_on_a_resnet_is_strictly_local(digits: DataSet) -> None:
    batch = Batch(torch.randn(8, *digits.in_shape), torch.arange(8), key=(0, 0, 0, 0))

    def gradients(perturbed: bool) -> list[Tensor]:
        method = small_resnet(digits)
        if perturbed:
            for parameter in method.blocks[2].parameters():
                nn.init.normal_(parameter)
        stage = method.stages(1)[0]
        method.enter(stage)
        for _ in method.update(batch, stage):
            pass
        return [p.grad for p in method.blocks[0].parameters() if p.grad is not None]

    one, other = gradients(perturbed=False), gradients(perturbed=True)
    assert len(one) == len(other) == 3
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
