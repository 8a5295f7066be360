"""Display of a comparison: the estimated time, a progress bar for the current method, a line per result."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from rich.console import Console

from hff.comparison import PROTOCOL, Comparison, ComparisonListener, Estimate, MethodResult, Trial
from hff.comparison.results import conditions, table_title
from hff.formatting import in_words
from hff.training import Listener
from hff.training.display import BarDisplay


class ComparisonDisplay(ComparisonListener):
    """Writes to standard output. Progress bars are shown on terminals only."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.live = ExitStack()
        """The part of the display that is redrawn in place."""

    def __enter__(self) -> "ComparisonDisplay":
        return self

    def __exit__(self, *exception: object) -> None:
        self.live.close()

    def measuring(self, count: int) -> None:
        if self.console.is_terminal:
            text = f"timing a few steps and predictions of {count} methods"
            self.live.enter_context(self.console.status(text))

    def planned(self, estimate: Estimate) -> None:
        self.live.close()
        comparison = self.comparison
        write = self.console.print
        settings = comparison.settings
        write(f"{_methods(len(comparison.entrants))} on {table_title(settings)}")
        write("\n".join([f"protocol {PROTOCOL}", *map(_uncapitalized, conditions(settings))]))
        parts = {
            "training": estimate.training,
            "validation and test": estimate.evaluation,
            "measuring memory": estimate.memory,
        }
        if estimate.total:
            shares = ", ".join(f"{in_words(seconds)} {part}" for part, seconds in parts.items())
            write(f"about {in_words(estimate.total)} left: {shares}")
        else:
            write("all methods are already trained")
        for name, reason in comparison.unsupported.items():
            write(f"{name} is left out: {reason}", markup=False)
        write()

    def trial(self, method: str, rate: float, number: int) -> Listener:
        return self._bar(f"{method}  trial {number}: rate {rate:g}")

    def tried(self, trials: Sequence[Trial]) -> None:
        self.live.close()
        width = max(map(len, self.comparison.entrants))
        lowest, *_, highest = sorted([trial.learning_rate for trial in trials] * 2)
        chosen = next((trial for trial in trials if trial.chosen), trials[0])
        text = f"rate {chosen.learning_rate:g} of {lowest:g} to {highest:g}, {_reached(chosen)} after a trial"
        self.console.print(f"{trials[0].method:{width}}  {text}", markup=False)

    def listener(self, method: str, number: int) -> Listener:
        return self._bar(self._label(method, number))

    def _bar(self, label: str) -> Listener:
        self.live.close()
        if not self.console.is_terminal:
            return Listener()
        bar = BarDisplay(label, self.console)
        self.live.enter_context(bar)
        return bar

    def trained(self, result: MethodResult, number: int) -> None:
        self.live.close()
        label = self._label(result.method, number)
        if result.failure:
            self.console.print(f"{label}  failed: {result.failure}", markup=False)
            return
        spent = f"{result.training_seconds:.1f} s, {result.epochs:g} epochs"
        accuracy = result.validation_accuracy
        reached = "accuracy unknown" if accuracy is None else f"{accuracy:6.2f} % on validation"
        self.console.print(f"{label}  {reached}, {spent}", markup=False)

    def _label(self, method: str, number: int) -> str:
        entrants = self.comparison.entrants
        seeds = self.comparison.settings.all_seeds
        total = len(entrants) * len(seeds)
        width, names = len(str(total)), max(map(len, entrants))
        networks = max(len(each.network) for each in entrants.values())
        network = entrants[method].network
        start = f"{number:{width}}/{total}  {method:{names}}"
        if len(seeds) > 1:
            return f"{start}  seed {seeds[(number - 1) // len(entrants)]}"
        return f"{start}  {network:{networks}}"


def _methods(count: int) -> str:
    return "1 method" if count == 1 else f"{count} methods"


def _reached(trial: Trial) -> str:
    return "failed" if trial.validation_accuracy is None else f"{trial.validation_accuracy:.2f} %"


def _uncapitalized(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]
