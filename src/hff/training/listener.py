"""The interface through which a display follows a training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hff.data import DataSet
from hff.methods import Stage


@dataclass(frozen=True)
class TrainingProgress:
    """The state of the training after a step."""

    stage: Stage
    stage_number: int
    stages: int
    epoch: int
    step: int
    steps: int
    losses: dict[str, float]
    """Mean loss of each group in the current epoch."""
    seconds_left: float | None
    share: float | None = None
    """The completed share of the time budget; None without one."""


class Listener:
    """Receives the events of a training. The methods do nothing; a display overrides those it needs."""

    def batch_size_chosen(self, batch_size: int) -> None:
        """No batch size is given, and this one was chosen for the data that `data_loaded` will show."""

    def data_loaded(self, data: DataSet, warnings: Sequence[str]) -> None:
        """A new training is about to start on this data; the warnings say why it may disappoint."""

    def started(self, layers: int, parameters: int, resumed_at: str | None) -> None:
        """The training starts, or resumes from a checkpoint."""

    def stepped(self, progress: TrainingProgress) -> None:
        """A step was completed; called a few times per second."""

    def epoch_ended(self, record: dict[str, Any]) -> None:
        """A line of metrics was written."""

    def finished(self, summary: dict[str, Any]) -> None:
        """The training is complete."""
