"""The time that a comparison announces is about the time that it takes."""

import time
from pathlib import Path

import pytest

from hff.bench.estimate import Estimate
from hff.comparison import Comparison, ComparisonListener, ComparisonSettings
from hff.experiment import Experiment

pytestmark = pytest.mark.slow

METHODS = ["equilibrium_prop", "ff", "hff", "noprop_dt"]
ATTEMPTS = 3
"""Other programs on the machine may disturb an attempt."""


class Clock(ComparisonListener):
    """Remembers the estimate and when it was made."""

    estimate = Estimate()
    started = 0.0

    def planned(self, estimate: Estimate) -> None:
        self.estimate, self.started = estimate, time.perf_counter()


def test_the_estimate_is_true_within_a_third_and_measuring_memory_is_a_small_part(tmp_path: Path) -> None:
    settings = ComparisonSettings(Experiment.from_mapping({}).data, epochs=5)
    found = []
    for attempt in range(ATTEMPTS):
        clock = Clock()
        Comparison(tmp_path / str(attempt), settings, METHODS, device="cpu").run(clock)
        taken = time.perf_counter() - clock.started
        found.append((clock.estimate, taken))
        if abs(clock.estimate.total - taken) < taken / 3 and clock.estimate.memory < taken / 3:
            return
    raise AssertionError(f"estimates and the seconds taken: {found}")
