"""The events of a comparison."""

from collections.abc import Sequence

from hff.bench.estimate import Estimate
from hff.comparison.rates import Trial
from hff.comparison.result import MethodResult
from hff.training import Listener


class ComparisonListener:
    """Receives the progress of a comparison. This base class ignores it."""

    def measuring(self, count: int) -> None:
        """Called before a few steps and predictions of `count` methods are timed."""

    def planned(self, estimate: Estimate) -> None:
        """Called before the first training, with the time that the comparison will take."""

    def trial(self, method: str, rate: float, number: int) -> Listener:
        """Called before a learning rate is tried; returns the listener of the short training.

        Args:
            method: the name of the entrant.
            rate: the learning rate.
            number: the position of the trial among those of the entrant, starting at 1.
        """
        return Listener()

    def tried(self, trials: Sequence[Trial]) -> None:
        """Called after the learning rate of a method was chosen by its trials."""

    def listener(self, method: str, number: int) -> Listener:
        """Called before a method is trained; returns the listener of its training.

        Args:
            method: the name of the entrant.
            number: the position of the training, starting at 1: all methods with the first seed, then all
                with the next one.
        """
        return Listener()

    def trained(self, result: MethodResult, number: int) -> None:
        """Called after a method was trained with one seed, or has failed. The result is that of the seed."""
