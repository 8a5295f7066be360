"""What a display hears from the loop."""

from dataclasses import dataclass
from typing import Any

from hff.methods import Stage


@dataclass(frozen=True)
class TrainingProgress:
    """Where the training stands after a step."""

    stage: Stage
    stage_number: int
    stages: int
    epoch: int
    step: int
    steps: int
    losses: dict[str, float]
    """Mean loss of each group in this epoch so far."""
    seconds_left: float | None
    share: float | None = None
    """How much of the whole training is done, where it goes by the clock; None where epochs count."""


class Listener:
    """Hears how a training goes; this one ignores it. Displays override what they show."""

    def started(self, layers: int, parameters: int, resumed_at: str | None) -> None:
        """The training begins, or goes on from a checkpoint."""

    def stepped(self, progress: TrainingProgress) -> None:
        """A few times a second, after a step."""

    def epoch_ended(self, record: dict[str, Any]) -> None:
        """A line of metrics was written."""

    def finished(self, summary: dict[str, Any]) -> None:
        """The training is complete."""
