import torch

from hff.data.splits import carve_test, stratified


def test_the_same_share_of_each_class_is_drawn() -> None:
    labels = torch.tensor([0] * 50 + [1] * 30 + [2] * 20)
    kept, taken = stratified(labels, 10, 0, "validation")
    assert torch.bincount(labels[taken]).tolist() == [5, 3, 2]
    assert torch.cat([kept, taken]).sort().values.tolist() == list(range(100))


def test_the_draw_depends_on_the_key_and_grows_with_the_count() -> None:
    labels = torch.arange(200) % 7
    ten = set(stratified(labels, 10, 0, "a")[1].tolist())
    assert ten == set(stratified(labels, 10, 0, "a")[1].tolist())
    assert ten != set(stratified(labels, 10, 1, "a")[1].tolist())
    assert ten < set(stratified(labels, 40, 0, "a")[1].tolist())


def test_the_only_example_of_a_class_stays_in_training() -> None:
    labels = torch.tensor([0] * 20 + [1])
    kept, _ = carve_test(labels, "any")
    assert 20 in kept.tolist()


def test_none_and_all_can_be_drawn() -> None:
    labels = torch.arange(6) % 2
    assert len(stratified(labels, 0, 0)[1]) == 0
    assert stratified(labels, 6, 0)[1].tolist() == list(range(6))
