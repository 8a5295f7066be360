"""Display of a comparison: the estimated time, a progress bar for the current method, a line per result."""

import sys
from contextlib import ExitStack

from rich.console import Console

from hff.comparison import Comparison, ComparisonListener, Estimate, MethodResult
from hff.comparison.results import table_title
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
        write(f"{_methods(len(comparison.entrants))} on {table_title(comparison.settings)}")
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

    def listener(self, method: str, number: int) -> Listener:
        if not self.console.is_terminal:
            return Listener()
        bar = BarDisplay(self._label(method, number), self.console)
        self.live.enter_context(bar)
        return bar

    def trained(self, result: MethodResult, number: int) -> None:
        self.live.close()
        label = self._label(result.method, number)
        if result.failure:
            self.console.print(f"{label}  failed: {result.failure}", markup=False)
            return
        spent = f"{result.training_seconds:.1f} s of training, {result.epochs:g} epochs"
        accuracy = result.validation_accuracy
        reached = "accuracy unknown" if accuracy is None else f"{accuracy:6.2f} % on validation"
        self.console.print(f"{label}  {reached}  {spent}", markup=False)

    def _label(self, method: str, number: int) -> str:
        entrants = self.comparison.entrants
        width, names = len(str(len(entrants))), max(map(len, entrants))
        networks = max(len(each.network) for each in entrants.values())
        network = entrants[method].network
        return f"{number:{width}}/{len(entrants)}  {method:{names}}  {network:{networks}}"


def _methods(count: int) -> str:
    return "1 method" if count == 1 else f"{count} methods"
