"""Prototypes stay on the unit sphere with every update rule."""

import math

import pytest
import torch

from hff.errors import UserError
from hff.functional import project
from hff.modules.prototypes import Prototypes


def lengths(prototypes: Prototypes) -> torch.Tensor:
    return prototypes.vectors.norm(dim=-1)


@pytest.mark.parametrize("update", ["gradient", "class_means", "shadow", "smoothed"])
@pytest.mark.parametrize("init", ["random", "simplex"])
def test_unit_norm_from_the_start(update: str, init: str) -> None:
    prototypes = Prototypes(5, 8, 3, update=update, init=init)
    assert torch.allclose(lengths(prototypes), torch.ones(5, 3), atol=1e-6)
    assert isinstance(prototypes.vectors, torch.nn.Parameter) == (update != "class_means")


def test_gradient_steps_return_to_the_sphere() -> None:
    prototypes = Prototypes(2, 2)
    with torch.no_grad():
        prototypes.vectors.copy_(torch.tensor([[[3.0, 4.0]], [[0.0, 2.0]]]))
    prototypes.after_step()
    assert torch.allclose(prototypes.vectors[:, 0], torch.tensor([[0.6, 0.8], [0.0, 1.0]]))


def test_shadow_predicts_with_the_average_and_learns_with_the_vectors() -> None:
    prototypes = Prototypes(1, 2, update="shadow", decay=0.5)
    with torch.no_grad():
        prototypes.vectors.copy_(torch.tensor([[[1.0, 0.0]]]))
        prototypes.get_buffer("average").copy_(torch.tensor([[[0.0, 1.0]]]))
    prototypes.after_step()
    half = 1 / math.sqrt(2)
    assert torch.equal(prototypes()[0, 0], torch.tensor([1.0, 0.0]))
    assert torch.allclose(prototypes.eval()()[0, 0], torch.tensor([half, half]))


def test_smoothed_takes_only_part_of_the_step() -> None:
    prototypes = Prototypes(1, 2, update="smoothed", decay=0.75)
    with torch.no_grad():
        prototypes.get_buffer("average").copy_(torch.tensor([[[1.0, 0.0]]]))
        prototypes.vectors.copy_(torch.tensor([[[0.0, 5.0]]]))
    prototypes.after_step()
    assert torch.allclose(prototypes.vectors[0, 0], project(torch.tensor([0.75, 0.25])))


def test_class_means_move_only_observed_classes() -> None:
    prototypes = Prototypes(3, 2, update="class_means", decay=0.9)
    before = prototypes.vectors.clone()
    prototypes.vectors[0, 0] = torch.tensor([1.0, 0.0])
    # Two directions of class 0: (0, 1) and (0, 1). The length of a feature does not matter.
    prototypes.observe(torch.tensor([[0.0, 2.0], [0.0, 7.0]]), torch.tensor([0, 0]))
    prototypes.after_step()
    assert torch.allclose(prototypes.vectors[0, 0], project(torch.tensor([0.9, 0.1])))
    assert torch.equal(prototypes.vectors[1:], before[1:])
    assert float(prototypes.sums.abs().sum() + prototypes.counts.sum()) == 0


def test_class_means_assign_samples_to_the_nearest_prototype_of_their_class() -> None:
    prototypes = Prototypes(2, 2, 2, update="class_means", decay=0.0)
    prototypes.vectors.copy_(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[-1.0, 0.0], [0.0, -1.0]]]))
    prototypes.observe(torch.tensor([[1.0, 0.2], [0.1, 1.0]]), torch.tensor([0, 0]))
    assert prototypes.counts.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    prototypes.after_step()
    assert torch.allclose(prototypes.vectors[0], project(torch.tensor([[1.0, 0.2], [0.1, 1.0]])))


def test_two_workers_that_add_their_sums_match_one_worker() -> None:
    features, labels = torch.randn(8, 4), torch.arange(8) % 2
    one, two, other = (Prototypes(2, 4, update="class_means") for _ in range(3))
    two.load_state_dict(one.state_dict())
    other.load_state_dict(one.state_dict())
    one.observe(features, labels)
    two.observe(features[:3], labels[:3])
    other.observe(features[3:], labels[3:])
    for mine, theirs in zip(two.reduced_buffers(), other.reduced_buffers(), strict=True):
        mine += theirs
    one.after_step()
    two.after_step()
    assert torch.allclose(one.vectors, two.vectors, atol=1e-6)


def test_copies_of_a_class_mean_start_apart() -> None:
    prototypes = Prototypes(2, 6, 3)
    prototypes.set_class_means(torch.tensor([[2.0, 0, 0, 0, 0, 0], [0.0, 0, 0, 0, 0, 0]]))
    same_class = prototypes.vectors[0] @ prototypes.vectors[0].T
    assert same_class[0, 1] < 1 - 1e-4
    assert (prototypes.vectors[0, :, 0] > 0.9).all()
    assert torch.allclose(lengths(prototypes), torch.ones(2, 3), atol=1e-6)


def test_simplex_needs_enough_dimensions() -> None:
    assert Prototypes(5, 4, init="simplex").vectors.shape == (5, 1, 4)
    with pytest.raises(UserError, match="No simplex of 5 prototypes exists in 3 dimensions"):
        Prototypes(5, 3, init="simplex")
