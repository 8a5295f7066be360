"""The course of a training: its accuracy over time, and when it has converged. Kept in a file."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hff.errors import UserError

PATIENCE = 3
"""Epochs for which an accuracy has to be held, as in the paper."""
VALIDATIONS = 4
"""Validations of an epoch; with the 55,000 training images of MNIST, about every 100 steps."""
FILE = "courses.jsonl"


@dataclass
class Course:
    """The accuracy at each validation of a training, and the seconds of training before it."""

    accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, seconds: float, accuracy: float) -> None:
        """Adds a part of an epoch and the validation after it."""
        self.seconds.append(seconds)
        self.accuracy.append(accuracy)

    def epochs_to(self, target: float) -> int | None:
        """The epochs until the target was reached at the ends of `PATIENCE` epochs; None if it was not."""
        held = 0
        for epoch, accuracy in enumerate(self.accuracy[VALIDATIONS - 1 :: VALIDATIONS], 1):
            held = held + 1 if accuracy >= target else 0
            if held == PATIENCE:
                return epoch
        return None

    def seconds_to(self, target: float) -> float | None:
        """The training time of these epochs."""
        epochs = self.epochs_to(target)
        return None if epochs is None else sum(self.seconds[: epochs * VALIDATIONS])

    def seconds_to_reach(self, target: float) -> float | None:
        """The training time until the accuracy was above the target for the following `PATIENCE` epochs.

        Unlike `seconds_to`, this is the time at which it was reached, not the time until it has been held.
        None if no validation is followed by that many epochs, all of them at the target.
        """
        held = 0
        for number, accuracy in enumerate(self.accuracy):
            held = held + 1 if accuracy >= target else 0
            if held == PATIENCE * VALIDATIONS + 1:
                return sum(self.seconds[: number + 2 - held])
        return None

    def over(self, target: float) -> bool:
        """Whether nothing about a target is open."""
        return self.epochs_to(target) is not None and self.seconds_to_reach(target) is not None


class CourseFile:
    """The courses and the trials of rates that are finished, in a file of a folder, one on each line.

    Only those that were measured under the same conditions are found again.

    Args:
        folder: the folder; None keeps nothing.
        conditions: everything that determines a course apart from its name.
    """

    def __init__(self, folder: Path | None, conditions: dict[str, Any]) -> None:
        self.path = None if folder is None else folder / FILE
        # As JSON gives them back: tuples become lists.
        self.conditions = json.loads(json.dumps(conditions))
        self._found: dict[str, Any] = {}
        if self.path is not None and self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            found = json.loads(line)
            name, conditions, value = found["name"], found["conditions"], found["value"]
        except (ValueError, TypeError, KeyError):
            return  # The line was not written to its end; what it was about is measured again.
        if conditions == self.conditions:
            self._found[name] = value

    def trial(self, method: str, rate: float) -> float | None:
        """The result of a trial of a learning rate."""
        return self._found.get(f"trial {method} {rate}")

    def keep_trial(self, method: str, rate: float, result: float) -> None:
        """Keeps the result of a trial."""
        self._keep(f"trial {method} {rate}", result)

    def course(self, method: str, seed: int, rate: float) -> Course | None:
        """A finished course."""
        found = self._found.get(f"course {method} {seed} {rate}")
        return None if found is None else Course(**found)

    def keep_course(self, method: str, seed: int, rate: float, course: Course) -> None:
        """Keeps a finished course."""
        self._keep(f"course {method} {seed} {rate}", asdict(course))

    def _keep(self, name: str, value: Any) -> None:
        if self.path is None:
            return
        line = json.dumps({"name": name, "conditions": self.conditions, "value": value})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # An incomplete line before this one must not swallow it.
            torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * torn + line + "\n")
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}.") from None
