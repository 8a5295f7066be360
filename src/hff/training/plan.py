"""How long each stage of a training lasts: a number of epochs, or a share of a time budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from hff.methods import Stage
from hff.training.settings import Settings

RECORDS = 20
"""The maximum number of validations of a training with a time budget, apart from the ends of its stages."""


@dataclass
class Position:
    """The position of a training: in `stage`, `epoch` epochs and `step` steps are done. All start at 0."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    records: int = 0
    seconds: float = 0.0
    """Wall-clock time, including validation and checkpoints."""
    spent: float = 0.0
    """Seconds spent in training steps only."""
    samples: int = 0
    """The number of training samples seen so far."""


class Plan:
    """Decides when a stage is over and when to validate.

    If both a time budget and the number of epochs end a training, a stage is over when its epochs or its
    share of the time is used up.

    A time budget is divided among the stages in proportion to their epochs. If the last step of a stage takes
    too long, the next stage gets less time, so the training exceeds its budget by at most one step. Every
    stage with at least one epoch takes at least one step.
    """

    def __init__(self, stages: Sequence[Stage], settings: Settings) -> None:
        self.stages = stages
        self.seconds = settings.seconds
        self.counts_epochs = self.seconds is None or settings.stop_at == "either"
        """Whether the number of epochs ends a stage."""
        epochs = [stage.epochs for stage in stages]
        self.ends = [(self.seconds or 0.0) * end / max(1, sum(epochs)) for end in accumulate(epochs)]
        """The training time in seconds at which each stage ends."""

    def progress(self, at: Position, steps: int) -> float:
        """The completed share of the current stage, with `steps` steps per epoch; at 1 it is over."""
        stage = self.stages[at.stage]
        if stage.epochs == 0:
            return 1.0
        done = (at.epoch * steps + at.step) / (steps * stage.epochs) if self.counts_epochs else 0.0
        if self.seconds is None or at.epoch == at.step == 0:
            return done
        start = self.ends[at.stage - 1] if at.stage else 0.0
        return max(done, (at.spent - start) / (self.ends[at.stage] - start))

    def over(self, at: Position, steps: int) -> bool:
        """Whether the current stage is over, with `steps` steps per epoch."""
        return self.progress(at, steps) >= 1

    def due(self, at: Position, steps: int) -> bool:
        """Whether to validate and save after an epoch; with a time budget, only about `RECORDS` times."""
        if self.seconds is None or self.over(at, steps):
            return True
        return at.spent >= (at.records + 1) * self.seconds / RECORDS

    def share(self, at: Position) -> float | None:
        """The completed share of the time budget; None without one."""
        return None if self.seconds is None else min(1.0, at.spent / self.seconds)

    def epochs(self, at: Position, samples: int) -> float:
        """The number of completed epochs of `samples` samples, which may be fractional with a time budget."""
        return at.records if self.seconds is None else round(at.samples / samples, 2)
