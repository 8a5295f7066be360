"""The search for learning rates: equal first trials, until the best rate is inside the range."""

from pathlib import Path
from typing import Any

import pytest

from hff.comparison import Comparison, ComparisonListener, ComparisonSettings
from hff.comparison.rates import MOST, SHARE, RateSearch, checked_rates, rate_at, trial_of
from hff.errors import UserError
from hff.experiment import Experiment, Selection
from hff.training import Listener, Run

DIGITS = Experiment.from_mapping({"data": {"name": "digits", "limit": 200}}).data
MLP = Selection("mlp", {"widths": (16, 12)})


@pytest.fixture(autouse=True)
def known_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring memory starts a process, which is slow and tested elsewhere."""
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 10**6)


def searched(accuracies: dict[float, float | None], declared: float) -> dict[float, float | None]:
    """The rates that a search tries, in order, if each rate has this accuracy."""
    search, tried = RateSearch(declared, "search"), dict[float, float | None]()
    while (rate := search.next(tried)) is not None:
        tried[rate] = accuracies[rate]
    return tried


def test_rates_are_three_or_ten_thirds_apart() -> None:
    assert [rate_at(1e-3, step) for step in range(-2, 4)] == [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2]
    assert [rate_at(3e-3, step) for step in range(-2, 3)] == [3e-4, 1e-3, 3e-3, 1e-2, 3e-2]
    assert [rate_at(5e-4, step) for step in (-1, 1)] == [1.667e-4, 1.667e-3]


def test_a_search_ends_when_the_best_rate_has_a_tried_one_on_either_side() -> None:
    peak = {3e-4: 60.0, 1e-3: 70.0, 3e-3: 65.0}
    assert list(searched(peak, 1e-3)) == [1e-3, 3e-4, 3e-3]
    rising = {**peak, 3e-3: 80.0, 1e-2: 85.0, 3e-2: 40.0}
    tried = searched(rising, 1e-3)
    assert list(tried) == [1e-3, 3e-4, 3e-3, 1e-2, 3e-2]
    search = RateSearch(1e-3, "search")
    assert (search.best(tried), search.at_edge(tried)) == (1e-2, False)
    falling = {3e-5: 10.0, 1e-4: 90.0, 3e-4: 80.0, 1e-3: 70.0, 3e-3: 60.0}
    assert list(searched(falling, 1e-3)) == [1e-3, 3e-4, 3e-3, 1e-4, 3e-5]


def test_a_search_is_bounded_and_says_that_the_best_rate_is_at_the_edge() -> None:
    rising: dict[float, float | None] = {rate_at(1e-3, step): 50.0 + step for step in range(-1, 10)}
    tried = searched(rising, 1e-3)
    search = RateSearch(1e-3, "search")
    assert len(tried) == MOST
    assert search.at_edge(tried)
    assert search.best(tried) == max(tried)


def test_failed_trials_are_worse_than_all_others_and_ties_are_near_the_declared_rate() -> None:
    search = RateSearch(1e-3, "search")
    assert search.best({1e-3: None, 3e-4: 12.0, 3e-3: None}) == 3e-4
    assert search.best({1e-3: None, 3e-4: None, 3e-3: None}) == 1e-3
    assert search.best({1e-3: 50.0, 3e-4: 50.0, 3e-3: 50.0}) == 1e-3


def test_a_list_of_rates_is_tried_and_nothing_else() -> None:
    search = RateSearch(1e-3, (0.1, 0.2))
    assert search.first == [0.1, 0.2]
    assert search.next({0.1: 1.0, 0.2: 2.0}) is None
    assert RateSearch(1e-3, "declared").next({}) is None
    for wrong in ("fast", (), (0.1, 0.1), (-1.0,), ("x",)):
        with pytest.raises(UserError, match="rates must be declared, search, or different positive"):
            checked_rates(wrong)


def test_a_trial_has_a_share_of_the_budget() -> None:
    epochs = ComparisonSettings(DIGITS, MLP, epochs=20).experiment(Selection("hff", {}), MLP)
    assert trial_of(epochs, 0.1).training.epochs == 20 * SHARE
    both = ComparisonSettings(DIGITS, MLP, epochs=2, seconds=10.0).experiment(Selection("hff", {}), MLP)
    short = trial_of(both, 0.1).training
    assert (short.epochs, short.seconds, short.learning_rate) == (1, 10 * SHARE, 0.1)


def test_trials_choose_the_rate_are_saved_and_are_not_repeated(tmp_path: Path) -> None:
    class Count(ComparisonListener):
        def __init__(self) -> None:
            self.trials: list[tuple[str, float, int]] = []

        def trial(self, method: str, rate: float, number: int) -> Listener:
            self.trials.append((method, rate, number))
            return Listener()

    settings = ComparisonSettings(DIGITS, MLP, epochs=2, batch_size=32, rates="search")
    first, second = Count(), Count()
    comparison = Comparison(tmp_path, settings, ["hff", "backprop"])
    results = comparison.run(first)
    assert [each[1:] for each in first.trials if each[0] == "hff"][:3] == [(3e-3, 1), (1e-3, 2), (1e-2, 3)]
    for each in results:
        trials = comparison.trials(each.method)
        best = max(trial.validation_accuracy or 0 for trial in trials)
        chosen = [trial for trial in trials if trial.chosen]
        assert [trial.learning_rate for trial in chosen] == [each.learning_rate]
        assert chosen[0].validation_accuracy == best
        assert (each.trials, len(trials) <= MOST) == (len(trials), True)
        run = Run.open(tmp_path / each.method)
        assert run.config["learning_rate"] == each.learning_rate
        trial = Run.open(tmp_path / each.method / "trials" / f"{each.learning_rate:g}")
        assert trial.config["epochs"] == 1
        assert trial.evaluation("test") is None
    lines = (tmp_path / "trials.csv").read_text().splitlines()
    assert len(lines) == 1 + len(first.trials)
    assert Comparison.open(tmp_path).run(second) == results
    assert not second.trials


def test_an_interrupted_trial_is_resumed(tmp_path: Path) -> None:
    class Stop(Listener):
        def epoch_ended(self, record: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    class StopTheSecond(ComparisonListener):
        def trial(self, method: str, rate: float, number: int) -> Listener:
            return Stop() if number == 2 else Listener()

    settings = ComparisonSettings(DIGITS, MLP, epochs=10, batch_size=64, rates=(0.003, 0.01))
    with pytest.raises(KeyboardInterrupt):
        Comparison(tmp_path, settings, ["backprop"]).run(StopTheSecond())
    interrupted = Run.open(tmp_path / "backprop/trials/0.01")
    assert (interrupted.finished, interrupted.position().epoch) == (False, 1)
    assert Comparison.open(tmp_path).estimate().training > 0
    (result,) = Comparison.open(tmp_path).run()
    assert (result.trials, interrupted.finished) == (2, True)
    assert result.rate_at_edge
