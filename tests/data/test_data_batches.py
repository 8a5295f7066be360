import pytest
import torch

from hff.data import Augmentation, Batches, DataSet, Preprocessing, TensorExamples
from hff.data.examples import JoinedExamples
from hff.errors import UserError
from hff.randomness import permutation, uniform

UNCHANGED = Preprocessing((0.0,), (1.0,), 1.0, (1, 6, 6))
AUGMENTED = Augmentation(crop=2, flip=True)


@pytest.fixture
def examples() -> TensorExamples:
    x = torch.randint(0, 256, (50, 1, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return TensorExamples(x, torch.arange(50) % 5)


def test_an_epoch_visits_each_example_once(examples: TensorExamples) -> None:
    batches = Batches(examples, UNCHANGED, 8, (0, "joint"), Augmentation.none())
    seen = list(batches.epoch(0))
    assert len(batches) == len(seen) == 7
    index = torch.cat([batch.index for batch in seen])
    assert torch.equal(index, permutation(50, 0, "joint", 0, "order"))
    assert sorted(index.tolist()) == list(range(50))
    for batch in seen:
        assert torch.equal(batch.x, examples.x[batch.index].float())
        assert torch.equal(batch.y, examples.labels[batch.index])
    assert [batch.key for batch in seen] == [(0, "joint", 0, step) for step in range(7)]


def test_drop_last(examples: TensorExamples) -> None:
    batches = Batches(examples, UNCHANGED, 8, (0, "joint"), Augmentation.none(), drop_last=True)
    assert len(batches) == 6
    assert [len(batch.y) for batch in batches.epoch(0)] == [8] * 6
    with pytest.raises(UserError, match="50 examples do not fill a batch of 51"):
        Batches(examples, UNCHANGED, 51, (0, "joint"), Augmentation.none(), drop_last=True)


def test_an_epoch_resumed_in_the_middle_is_the_same(examples: TensorExamples) -> None:
    batches = Batches(examples, UNCHANGED, 8, (3, "joint"), AUGMENTED)
    whole, resumed = list(batches.epoch(2)), list(batches.epoch(2, start=4))
    assert len(resumed) == 3
    for a, b in zip(whole[4:], resumed, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.index, b.index)
        assert a.key == b.key


def test_epochs_and_seeds_differ(examples: TensorExamples) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        batches = Batches(examples, UNCHANGED, 50, (seed, "joint"), AUGMENTED)
        return next(batches.epoch(epoch)).index.tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_augmentation_depends_on_the_sample_not_on_its_batch(examples: TensorExamples) -> None:
    small = Batches(examples, UNCHANGED, 4, (0, "joint"), AUGMENTED)
    large = Batches(examples, UNCHANGED, 25, (0, "joint"), AUGMENTED)

    def by_sample(batches: Batches) -> torch.Tensor:
        result = torch.empty(50, 1, 6, 6)
        for batch in batches.epoch(1):
            result[batch.index] = batch.x
        return result

    assert torch.equal(by_sample(small), by_sample(large))
    index = torch.arange(50)
    draws = uniform(index, 3, 0, "joint", 1, "augmentation")
    assert torch.equal(by_sample(small), AUGMENTED(examples.x, draws, (1, 6, 6)).float())


def test_evaluation_is_in_order_without_augmentation(examples: TensorExamples) -> None:
    batches = Batches.in_order(examples, UNCHANGED, 16)
    first, second = list(batches.epoch(0)), list(batches.epoch(1))
    assert torch.equal(torch.cat([batch.index for batch in first]), torch.arange(50))
    assert torch.equal(torch.cat([batch.x for batch in first]), examples.x.float())
    assert torch.equal(first[1].x, second[1].x)


def test_batches_of_a_table() -> None:
    table = TensorExamples(torch.rand(10, 3), torch.arange(10) % 2)
    batch = next(Batches.in_order(table, Preprocessing((0.0,), (1.0,), 1.0, (3,)), 10).epoch(0))
    torch.testing.assert_close(batch.x, table.x)


def test_wrong_sizes_are_refused(examples: TensorExamples) -> None:
    with pytest.raises(UserError, match="at least 1, not 0"):
        Batches(examples, UNCHANGED, 0, (0, "joint"), AUGMENTED)
    with pytest.raises(UserError, match="3 examples but 2 labels"):
        TensorExamples(torch.zeros(3, 1), torch.zeros(2))


def test_subset_keeps_the_given_order(examples: TensorExamples) -> None:
    subset = examples.subset(torch.tensor([7, 3]))
    assert torch.equal(subset.fetch(torch.tensor([1])), examples.x[[3]])
    assert subset.labels.tolist() == [2, 3]


def test_a_data_set_gives_the_batches_of_an_epoch(digits: DataSet) -> None:
    first = list(digits.batches(100, epoch=0, seed=3))
    assert sum(len(batch.y) for batch in first) == len(digits.train)
    assert [batch.key for batch in first[:2]] == [(3, 0, 0, 0), (3, 0, 0, 1)]
    again, other = list(digits.batches(100, epoch=0, seed=3)), list(digits.batches(100, epoch=1, seed=3))
    assert torch.equal(first[0].x, again[0].x)
    assert not torch.equal(first[0].index, other[0].index)


def test_a_balanced_epoch_draws_every_class_equally_often() -> None:
    # 40 examples of class 0, 7 of class 1, none of class 2, and 3 of class 3.
    labels = torch.tensor([0] * 40 + [1] * 7 + [3] * 3)
    x = torch.arange(50.0).view(50, 1, 1, 1).expand(50, 1, 6, 6)
    batches = Batches(
        TensorExamples(x, labels), UNCHANGED, 8, (0, "joint"), Augmentation.none(), balanced=True
    )
    first, second = (torch.cat([batch.index for batch in batches.epoch(epoch)]) for epoch in (0, 1))
    assert len(batches) == 7
    for order in (first, second):
        assert torch.bincount(labels[order]).tolist() == [17, 17, 0, 16]
        times = torch.bincount(order, minlength=50)
        # Frequent classes are used in part, and every example of a rare class about equally often.
        assert times[:40].max() == 1
        assert set(times[40:47].tolist()) == {2, 3}
        assert set(times[47:].tolist()) == {5, 6}
    assert not torch.equal(first, second)
    resumed = torch.cat([batch.index for batch in batches.epoch(0, start=3)])
    assert torch.equal(resumed, first[24:])


def test_repeated_samples_of_a_balanced_epoch_are_augmented_independently() -> None:
    labels = torch.tensor([0] * 30 + [1])
    x = torch.rand(31, 1, 6, 6)
    batches = Batches(TensorExamples(x, labels), UNCHANGED, 31, (0, "joint"), AUGMENTED, balanced=True)
    (batch,) = batches.epoch(0)
    versions = {
        tuple(image.flatten().tolist()) for image, label in zip(batch.x, batch.y, strict=True) if label
    }
    assert len(versions) > 5


def test_joined_examples_are_fetched_in_any_order() -> None:
    parts = [
        TensorExamples(torch.arange(n, n + 3.0).view(3, 1), torch.tensor([0, 1, 2])) for n in (0, 10, 20)
    ]
    joined = JoinedExamples(parts)
    assert len(joined) == 9
    assert joined.fetch(torch.tensor([7, 0, 4, 4])).flatten().tolist() == [21.0, 0.0, 11.0, 11.0]
    chosen = joined.subset(torch.tensor([8, 2, 3]))
    assert chosen.labels.tolist() == [2, 2, 0]
    assert chosen.fetch(torch.tensor([2, 0])).flatten().tolist() == [10.0, 22.0]
