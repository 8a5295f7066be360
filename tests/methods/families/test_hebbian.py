"""Shared by Hebbian rules: sums of patches, class means, stages, and blocks that learn without labels."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import Stage, create_method
from hff.methods.families.hebbian import HebbianMethod, patch_sums, without_biases
from hff.modules.class_means import ClassMeans
from hff.networks import AffineBlock, AffineRow, Network, create_network
from hff.training import Settings, fit

RULES = ["hebb", "softhebb"]
MLP = create_network("mlp", (6,), 3, widths=(8, 5))


def method_of(name: str, table: Network = MLP, **options: object) -> HebbianMethod:
    method = create_method(name, table, 3, **options)
    assert isinstance(method, HebbianMethod)
    return method


def batch() -> Batch:
    return Batch(torch.randn(9, 6), torch.arange(9) % 3, torch.arange(9), (0, 0, 0, 0))


def unfolded(block: AffineBlock, x: Tensor) -> Tensor:
    """All patches of the input of an affine map, [B, positions, D]."""
    if x.dim() == 2:
        return x.unsqueeze(1)
    return F.unfold(x, block.row.kernel, padding=block.affine.padding, stride=block.row.stride).transpose(
        1, 2
    )


@pytest.mark.parametrize(
    "row",
    [
        AffineRow("linear", 4),
        AffineRow("conv", 4),
        AffineRow("conv", 4, kernel=5, padding=2, padding_mode="reflect"),
        AffineRow("conv", 4, stride=2, padding=0),
    ],
    ids=["linear", "zeros", "mirrored", "strided"],
)
def test_patch_sums_are_products_with_unfolded_patches(row: AffineRow) -> None:
    block = AffineBlock(row, (3, 7, 7))
    x = block.affine_input(torch.randn(2, 3, 7, 7))
    gates = torch.randn(2, *block.map_shape)
    patches = unfolded(block, x)
    expected = torch.einsum("bkp,bpd->kd", gates.reshape(2, 4, -1), patches)
    assert torch.allclose(patch_sums(block, gates, x).flatten(1), expected, atol=1e-4)


def test_class_means_do_not_depend_on_the_batches() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 4), torch.randint(0, 3, (40,))
    for sizes in ([40], [1] * 40, [7, 13, 20]):
        head = ClassMeans(4, 3)
        for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True):
            head.learn(xs, ys)
            head.weight.data -= head.weight.grad
            head.weight.grad = None
        for label in range(3):
            assert torch.allclose(head.weight[label], x[y == label].mean(0), atol=1e-6)


def test_scores_are_projections_onto_the_directions_of_the_means() -> None:
    head = ClassMeans(2, 3)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 10.0], [0.0, 0.0]]))
    # The length of a mean does not matter, and a class without samples has score 0.
    assert head(torch.tensor([[1.0, 2.0]]))[0].tolist() == pytest.approx([0.6 + 1.6, 2.0, 0.0])


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("layer_order", ["joint", "greedy"])
def test_blocks_learn_without_labels(name: str, layer_order: str, digits: DataSet) -> None:
    others = copy.copy(digits.train)
    others.labels = digits.train.labels.roll(1)
    table = create_network("mlp", digits.in_shape, 10, widths=(12, 9))
    true, false = (create_method(name, table, 10, layer_order=layer_order) for _ in range(2))
    before = copy.deepcopy(true.blocks.state_dict())
    fit(true, digits, Settings(epochs=2, batch_size=64))
    fit(false, replace(digits, train=others), Settings(epochs=2, batch_size=64))
    for key, learned in true.blocks.state_dict().items():
        assert torch.equal(learned, false.blocks.state_dict()[key])
        assert not torch.equal(learned, before[key])
    heads = zip(true.heads.parameters(), false.heads.parameters(), strict=True)
    assert not any(torch.equal(a, b) for a, b in heads)


@pytest.mark.parametrize("name", RULES)
def test_a_block_changes_only_its_own_weights_and_builds_no_graph(name: str) -> None:
    method = method_of(name)
    stage = method.stages(2)[0]
    method.enter(stage)
    groups = []
    for group, watched in method.update(batch(), stage):
        assert not watched.requires_grad
        groups.append(group)
        changed = [key for key, p in method.named_parameters() if p.grad is not None]
        assert changed == [f"blocks.{len(groups) - 1}.affine.weight"]
        method.zero_grad(set_to_none=True)
    assert groups == ["block0", "block1"]


def test_changes_accumulate() -> None:
    method = method_of("softhebb")
    stage = method.stages(2)[0]
    same = batch()
    list(method.update(same, stage))
    once = [block.affine.weight.grad for block in method.blocks]
    list(method.update(same, stage))
    twice = [block.affine.weight.grad for block in method.blocks]
    assert all(torch.equal(2 * a, b) for a, b in zip(once, twice, strict=True))


def test_read_outs_learn_on_frozen_blocks() -> None:
    for name in RULES:
        method = method_of(name)
        last = method.stages(4)[-1]
        method.enter(last)
        assert not any(block.training for block in method.blocks)
        groups = [group for group, _ in method.update(batch(), last)]
        assert groups == ["read_out0", "read_out1"]
        assert all(p.grad is None for p in method.blocks.parameters())
        assert all(p.grad is not None for p in method.heads.parameters())


def spans(stages: list[Stage]) -> list[tuple[tuple[int, ...], int, bool, bool]]:
    return [(stage.blocks, stage.epochs, stage.labels, stage.predicts) for stage in stages]


def test_the_epochs_are_divided_between_blocks_and_read_outs() -> None:
    hebb, soft = method_of("hebb"), method_of("softhebb", block_epochs=1)
    assert spans(hebb.stages(6)) == [((0, 1), 5, False, False), ((), 1, True, True)]
    assert spans(soft.stages(51)) == [((0, 1), 1, False, False), ((), 50, True, True)]
    assert [stage.batch_size for stage in soft.stages(6)] == [10, None]
    # At least one epoch each.
    assert spans(hebb.stages(1)) == [((0, 1), 1, False, False), ((), 1, True, True)]
    two = method_of("hebb", block_epochs=9)
    assert [stage.epochs for stage in two.stages(4)] == [3, 1]
    half = method_of("softhebb")
    assert [[stage.epochs for stage in half.stages(epochs)] for epochs in (1, 2, 7, 100)] == [
        [1, 1],
        [1, 1],
        [4, 3],
        [50, 50],
    ]
    greedy = method_of("softhebb", layer_order="greedy", block_epochs=2)
    assert spans(greedy.stages(6)) == [((0,), 2, False, False), ((1,), 2, False, False), ((), 4, True, True)]


def test_biases_gains_and_a_last_row_of_c_units_are_removed() -> None:
    rows = (AffineRow("conv", 4, norm="batch"), AffineRow("linear", 6, norm="layer"), AffineRow("linear", 3))
    left = without_biases(Network("mine", (1, 4, 4), rows), 3)
    assert [(row.width, row.bias, row.norm) for row in left.rows] == [
        (4, False, "batch_plain"),
        (6, False, "layer_plain"),
    ]
    assert len(without_biases(Network("mine", (4,), (AffineRow("linear", 3),)), 3).rows) == 1


def test_maps_are_pooled_to_a_grid_for_the_read_outs() -> None:
    table = create_network("cnn", (1, 16, 16), 3, channels=(4, 6))
    method = method_of("softhebb", table, grid=2)
    assert [head[-1].in_features for head in method.heads] == [4 * 4, 6 * 4]


@pytest.mark.parametrize("name", RULES)
def test_invalid_options_raise_a_user_error(name: str) -> None:
    for wrong in (0, -1, 1.5):
        with pytest.raises(UserError, match=f"a number of epochs or a share between 0 and 1, not {wrong:g}"):
            method_of(name, block_epochs=wrong)
    with pytest.raises(UserError, match="choose a network without groups"):
        method_of(name, create_network("channelwise", (3, 8, 8), 4, channels=(8, 8)))
