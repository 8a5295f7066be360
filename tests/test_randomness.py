"""Random numbers depend on their key only."""

import torch

from hff.batch import Batch
from hff.randomness import generator, permutation, seed_of, uniform


def test_the_seed_depends_on_every_part_of_the_key() -> None:
    seeds = {seed_of(*key) for key in [(1, 2), (2, 1), (12,), ("1", 2), (1, 2, 0), (1, 2, "order")]}
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_permutations_and_generators_repeat_with_the_same_key() -> None:
    assert torch.equal(permutation(50, 3, "order"), permutation(50, 3, "order"))
    assert not torch.equal(permutation(50, 3, "order"), permutation(50, 4, "order"))
    assert permutation(50, 3).sort().values.tolist() == list(range(50))
    assert torch.equal(torch.rand(3, generator=generator(7)), torch.rand(3, generator=generator(7)))


def test_the_numbers_of_a_sample_do_not_depend_on_its_batch() -> None:
    whole = uniform(torch.arange(10), 4, 0, "noise")
    assert torch.equal(whole[3:7], uniform(torch.arange(3, 7), 4, 0, "noise"))
    assert torch.equal(whole[:, :2], uniform(torch.arange(10), 2, 0, "noise"))
    assert not torch.equal(whole, uniform(torch.arange(10), 4, 1, "noise"))


def test_uniform_numbers_are_uniform_and_independent() -> None:
    draws = uniform(torch.arange(20_000), 3, 5)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert torch.allclose(draws.mean(0), torch.full((3,), 0.5), atol=0.01)
    assert torch.allclose(draws.var(0), torch.full((3,), 1 / 12), atol=0.003)
    correlation = torch.corrcoef(draws.T)
    assert (correlation - torch.eye(3)).abs().max() < 0.03
    # Neighboring samples are independent, too.
    assert torch.corrcoef(torch.stack([draws[:-1, 0], draws[1:, 0]]))[0, 1].abs() < 0.03


def test_the_numbers_of_a_batch_depend_on_its_key_and_indices() -> None:
    batch = Batch(torch.zeros(3, 2), torch.zeros(3), torch.tensor([4, 5, 6]), (0, 0, 1, 2))
    assert torch.equal(
        batch.uniform(2, "negatives"), uniform(torch.tensor([4, 5, 6]), 2, 0, 0, 1, 2, "negatives")
    )
    assert batch.to(torch.device("cpu")) is batch


def test_normal_numbers_are_normal_and_do_not_depend_on_the_batch() -> None:
    index = torch.arange(20_000)
    batch = Batch(torch.zeros(20_000, 1), torch.zeros(20_000), index, (0, 0, 1, 2))
    draws = batch.normal(3, "noise")
    assert draws.dtype == torch.float32
    assert draws.isfinite().all()
    assert torch.allclose(torch.cov(draws.T), torch.eye(3), atol=0.03)
    assert torch.allclose(draws.mean(0), torch.zeros(3), atol=0.03)
    assert ((draws.abs() < 1).float().mean() - 0.6827).abs() < 0.01
    part = Batch(batch.x[5:9], batch.y[5:9], index[5:9], batch.key)
    assert torch.equal(part.normal(3, "noise"), draws[5:9])
