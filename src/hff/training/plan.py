"""How long the stages of a training last: so many epochs each, or their share of so many seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from hff.methods import Stage
from hff.training.settings import Settings

RECORDS = 20
"""How often a training by the clock is validated and saved at most, beside the ends of its stages."""


@dataclass
class Position:
    """Where a training stands: `step` steps of `epoch` epochs of `stage` are done; all count from 0."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    records: int = 0
    seconds: float = 0.0
    """Wall-clock time, validation and checkpoints included."""
    spent: float = 0.0
    """Seconds of training steps alone."""
    samples: int = 0
    """How many samples these steps have seen."""


class Plan:
    """When a stage is over, how far it is, and when there is something to record.

    By the clock, each stage gets the share of the seconds that its epochs are of all epochs. What the last
    step of a stage takes too long is missing from the next one, so that in the end no more than one step is
    spent above the budget; but every stage that has a share does one step at least.
    """

    def __init__(self, stages: Sequence[Stage], settings: Settings) -> None:
        self.stages = stages
        self.seconds = settings.seconds
        epochs = [stage.epochs for stage in stages]
        self.ends = [(self.seconds or 0.0) * end / max(1, sum(epochs)) for end in accumulate(epochs)]
        """The training seconds after which each stage is over."""

    def progress(self, at: Position, steps: int) -> float:
        """The share of the current stage that is done, with so many steps an epoch; from 1 on it is over."""
        stage = self.stages[at.stage]
        if stage.epochs == 0:
            return 1.0
        if self.seconds is None:
            return (at.epoch * steps + at.step) / (steps * stage.epochs)
        if at.epoch == at.step == 0:
            return 0.0
        start = self.ends[at.stage - 1] if at.stage else 0.0
        return (at.spent - start) / (self.ends[at.stage] - start)

    def over(self, at: Position, steps: int) -> bool:
        """Whether the current stage is."""
        return self.progress(at, steps) >= 1

    def due(self, at: Position, steps: int) -> bool:
        """Whether to validate and save after an epoch: always, but by the clock so that it stays rare."""
        if self.seconds is None or self.over(at, steps):
            return True
        return at.spent >= (at.records + 1) * self.seconds / RECORDS

    def share(self, at: Position) -> float | None:
        """The share of the whole training that is done, by the clock; None where epochs count."""
        return None if self.seconds is None else min(1.0, at.spent / self.seconds)

    def epochs(self, at: Position, samples: int) -> float:
        """How many epochs of so many samples have passed; by the clock they need not be whole."""
        return at.records if self.seconds is None else round(at.samples / samples, 2)
