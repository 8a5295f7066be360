"""Ranks with ties, groups, and several seeds."""

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from test_comparison import TINY, result

from hff.comparison import Comparison, ComparisonListener
from hff.comparison.ranking import grouped, is_better, ranked, ranks
from hff.methods import Group
from hff.training import Listener, Run


@pytest.fixture(autouse=True)
def known_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring memory starts a process, which is slow and tested elsewhere."""
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 10**6)


def test_means_that_differ_by_less_than_the_larger_deviation_are_ties() -> None:
    low, high = result("a", 90.0, validation_std=0.5), result("b", 90.4, validation_std=0.1)
    assert not is_better(high, low)
    assert is_better(result("b", 90.5, validation_std=0.1), low)
    assert is_better(result("b", 90.01), result("a", 90.0))
    assert not is_better(result("b", 90.0), result("a", 90.0))


def test_a_rank_is_a_range_from_the_better_results_to_those_that_are_not_worse() -> None:
    deviations = {"validation_std": 0.3}
    results = ranked(
        [
            result("first", 95.0, **deviations),
            result("b", 90.4, **deviations),
            result("c", 90.2, **deviations),
            result("d", 90.0, **deviations),
            result("last", 80.0, **deviations),
            result("broken", None, failure="It diverged."),
        ]
    )
    assert ranks(results) == ["1", "2-3", "2-4", "3-4", "5", ""]
    assert ranks([result("a", 91.0), result("b", 90.0)]) == ["1", "2"]


def test_rows_are_grouped_by_what_a_rule_is_allowed() -> None:
    results = [
        result("backprop", 99.0, group=Group.BACKPROP),
        result("b", 90.0),
        result("tff", 95.0, group=Group.FURTHER),
        result("c", 89.0),
    ]
    found = [(group.short, [each.method for each in members]) for group, members in grouped(results)]
    assert found == [("local", ["b", "c"]), ("further", ["tff"]), ("backprop", ["backprop"])]


def test_seeds_give_mean_and_deviation_and_can_be_added(tmp_path: Path) -> None:
    class Numbers(ComparisonListener):
        def __init__(self) -> None:
            self.numbers: list[int] = []

        def listener(self, method: str, number: int) -> Listener:
            self.numbers.append(number)
            return Listener()

    names = ["backprop", "sff"]
    one = Comparison(tmp_path, TINY, names).run()
    assert [(each.seeds, each.validation_std) for each in one] == [(1, None)] * 2
    numbers = Numbers()
    results = Comparison(tmp_path, replace(TINY, seeds=3), names).run(numbers)
    # The first seed is not trained again.
    assert numbers.numbers == [3, 4, 5, 6]
    for each in results:
        folder = tmp_path / each.method
        runs = [Run.open(folder), Run.open(folder / "seed-1"), Run.open(folder / "seed-2")]
        assert [run.config["seed"] for run in runs] == [0, 1, 2]
        validated = [100 * (run.summary() or {})["read_out_accuracy"] for run in runs]
        tested = [100 * (run.evaluation("test") or {})["accuracy"] for run in runs]
        assert each.validation_accuracy == round(statistics.fmean(validated), 2)
        assert each.validation_std == round(statistics.stdev(validated), 2)
        assert (each.test_accuracy, each.test_std) == (
            round(statistics.fmean(tested), 2),
            round(statistics.stdev(tested), 2),
        )
        assert each.seeds == 3
    assert "seeds 0 to 2" in (tmp_path / "comparison.md").read_text()
    assert Comparison.open(tmp_path).results() == results


def test_a_method_that_fails_with_one_seed_has_failed(tmp_path: Path) -> None:
    comparison = Comparison(tmp_path, replace(TINY, seeds=2), ["backprop", "sff"])
    comparison.run_of("sff", 1).save_failure("It diverged.")
    results = comparison.run()
    assert [(each.method, each.failure) for each in results] == [("backprop", None), ("sff", "It diverged.")]
