"""The order of results, ranks with ties, and groups of rows."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from hff.comparison.result import MethodResult
from hff.methods import Group


def ranked(results: Iterable[MethodResult]) -> list[MethodResult]:
    """The results ordered by validation accuracy, then by name. Failed methods come last."""
    return sorted(
        results,
        key=lambda result: (
            result.failure is not None,
            -(result.validation_accuracy or 0.0),
            result.method,
        ),
    )


def is_better(one: MethodResult, other: MethodResult) -> bool:
    """Whether the mean validation accuracy is higher by at least the larger standard deviation of the two."""
    difference = (one.validation_accuracy or 0.0) - (other.validation_accuracy or 0.0)
    return difference > 0 and difference >= max(one.validation_std or 0.0, other.validation_std or 0.0)


def ranks(results: Sequence[MethodResult]) -> list[str]:
    """The rank of each result, such as "1", or "2-4" for a tie; empty if the training failed.

    The first number is 1 more than the number of better results. The second one is the number of results
    that are not worse.
    """
    trained = [result for result in results if result.failure is None]
    found = []
    for result in results:
        first = 1 + sum(is_better(other, result) for other in trained)
        last = len(trained) - sum(is_better(result, other) for other in trained)
        found.append("" if result.failure else str(first) if first == last else f"{first}-{last}")
    return found


def grouped(results: Iterable[MethodResult]) -> list[tuple[Group, list[MethodResult]]]:
    """The results by group, from strictly local rules to backprop. The order within a group is kept."""
    order = list(Group)
    by_group = sorted(results, key=lambda result: order.index(result.group))
    return [(group, list(members)) for group, members in groupby(by_group, lambda result: result.group)]
