import pytest

from hff.training.advice import ENOUGH_STEPS, suitable_batch_size


@pytest.mark.parametrize(
    ("samples", "expected"),
    [(1, 8), (57, 8), (144, 8), (145, 16), (288, 16), (289, 32), (1152, 64), (1153, 128), (10**6, 128)],
)
def test_the_batch_size_is_the_largest_with_enough_steps_per_epoch(samples: int, expected: int) -> None:
    assert suitable_batch_size(samples) == expected
    if expected < 128:
        assert -(-samples // (2 * expected)) < ENOUGH_STEPS
