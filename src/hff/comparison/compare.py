"""A comparison: a folder with a run of every method, and a table of their results."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from hff.bench.estimate import Cost, Estimate, estimate, measure_costs, measuring_seconds
from hff.bench.memory import MemoryMeter, is_out_of_memory
from hff.comparison.entrants import find_entrants
from hff.comparison.results import MethodResult, as_csv, as_markdown, ranked, result_of
from hff.comparison.settings import SCHEMA, ComparisonSettings
from hff.data import load_data
from hff.errors import UserError, shortened
from hff.experiment import resume, train
from hff.files import read_json
from hff.methods import methods
from hff.trained import evaluate_run
from hff.training import Listener, Run, pick_device
from hff.training.checkpoint import create_folder, write_atomically
from hff.training.lock import FolderInUse, FolderLock
from hff.training.run import write_json

SETTINGS, OLD_SETTINGS = "settings.json", "terms.json"
"""Version 0.1.0 saved the settings in terms.json, under the key "terms"."""
TABLE, PAGE, FIGURE = "comparison.csv", "comparison.md", "comparison.png"


METHOD_SECONDS, FIGURE_SECONDS = 0.4, 0.7
"""What does not depend on the budget: the files and the scales of a method, and drawing the figure."""


class ComparisonListener:
    """Receives the progress of a comparison. This base class ignores it."""

    def measuring(self, count: int) -> None:
        """Called before a few steps and predictions of `count` methods are timed."""

    def planned(self, estimate: Estimate) -> None:
        """Called before the first training, with the time that the comparison will take."""

    def listener(self, method: str, number: int) -> Listener:
        """Called before a method is trained; returns the listener of its training.

        Args:
            method: the name of the method.
            number: its position among all methods, starting at 1.
        """
        return Listener()

    def trained(self, result: MethodResult, number: int) -> None:
        """Called after a method was trained or has failed."""


class Comparison:
    """Several methods trained with the same settings, in one folder. Finished work is not repeated.

    Args:
        folder: the folder of the comparison. If it contains one already, its settings must be the same.
        settings: the settings that all methods share.
        names: the methods; None for all registered ones.
        data_dir: the folder of data files.
        device: the device to train on.
    """

    def __init__(
        self,
        folder: Path,
        settings: ComparisonSettings,
        names: Sequence[str] | None = None,
        *,
        data_dir: Path | None = None,
        device: str = "auto",
    ) -> None:
        names = sorted(methods.working()) if names is None else list(dict.fromkeys(names))
        for name in names:
            methods.find(name)
        if not names:
            raise UserError("There are no methods to compare; name at least one.")
        self.folder, self.settings, self.names = folder, settings, names
        self.lock = FolderLock(folder)
        """Entered while the comparison runs. A second process that enters it gets an error."""
        self._refuse_other_settings()
        self.device = device
        data = settings.data
        self.data = load_data(data.name, data_dir=data_dir, seed=settings.seed, **data.options)
        if self.data.validation is None:
            raise UserError("A comparison ranks on validation examples; set data.validation above 0.")
        self.settings = settings = settings.for_data(self.data)
        self.entrants, self.unsupported = find_entrants(
            settings, names, self.data.in_shape, len(self.data.classes)
        )
        if not self.entrants:
            raise UserError(next(iter(self.unsupported.values())))

    @classmethod
    def open(cls, folder: Path, *, data_dir: Path | None = None, device: str = "auto") -> "Comparison":
        """The comparison in a folder."""
        found = _read(folder)
        if found is None:
            raise UserError(f"{folder} does not contain a comparison: it has no {SETTINGS}.")
        settings, names = found
        return cls(folder, settings, names, data_dir=data_dir, device=device)

    def run_of(self, name: str) -> Run:
        """The run of a method."""
        return Run(self.folder / name)

    def run(self, listener: ComparisonListener | None = None) -> list[MethodResult]:
        """Trains the methods that are not trained yet, then tests those that are not tested yet.

        Returns the results of all methods, ranked.
        """
        with self.lock:
            return self._run(listener or ComparisonListener())

    def _run(self, listener: ComparisonListener) -> list[MethodResult]:
        create_folder(self.folder)
        saved = {"settings": self.settings.to_mapping(), "methods": self.names}
        write_json(self.folder / SETTINGS, saved)
        listener.measuring(len(self.entrants))
        # The process that measures memory ends before the first training, which may need all of the memory.
        with MemoryMeter() as meter:
            listener.planned(self._estimate(meter))
            for name in self._unmeasured():
                self._measure_memory(name, meter)
        for number, name in enumerate(self.entrants, 1):
            if not self._is_trained(name):
                self._train(name, listener.listener(name, number))
            listener.trained(self.result(name), number)
        self._test()
        results = self.results()
        write_atomically(self.folder / TABLE, as_csv(results))
        write_atomically(self.folder / PAGE, as_markdown(results, self.unsupported, self.settings))
        return results

    def estimate(self) -> Estimate:
        """The remaining time, estimated from a few steps and predictions and two memory measurements."""
        with MemoryMeter() as meter:
            return self._estimate(meter)

    def _estimate(self, meter: MemoryMeter) -> Estimate:
        data = self.data
        sizes = {
            "train": len(data.train),
            "validation": len(data.validation or ()),
            "test": len(data.test or ()),
        }
        total = Estimate()
        for name, entrant in self.entrants.items():
            if not self._is_trained(name):
                at = self.run_of(name).position()
                total += estimate(entrant, self.costs.get(name), **sizes, spent=at.spent, seen=at.samples)
                total += Estimate(evaluation=METHOD_SECONDS)
        if total.total:
            total += Estimate(evaluation=FIGURE_SECONDS)
        return total + Estimate(memory=self._memory_seconds(meter))

    def _memory_seconds(self, meter: MemoryMeter) -> float:
        """The time of the remaining memory measurements. The first two are done here.

        The first one starts a process, and the second one shows how long a measurement takes.
        """
        unmeasured = self._unmeasured()
        for name in unmeasured[:1]:
            self._measure_memory(name, meter)
        others = unmeasured[1:]
        if not others:
            return 0.0
        started = time.perf_counter()
        self._measure_memory(others[0], meter)
        return measuring_seconds(time.perf_counter() - started, [self.costs.get(name) for name in others])

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """The cost of each method on this machine, unless it ran out of memory.

        Saved measurements are reused.
        """
        known = {name: self.run_of(name).cost() for name in self.entrants}
        missing = [
            entrant
            for name, entrant in self.entrants.items()
            if "prediction_seconds" not in known[name]
            or len(known[name].get("step_seconds", ())) != len(entrant.stages)
        ]
        measured = measure_costs(
            missing, self.data.in_shape, len(self.data.classes), pick_device(self.device)
        )
        for name, cost in measured.items():
            self.run_of(name).add_cost(asdict(cost))
        unknown = {entrant.method for entrant in missing}
        saved = {
            name: Cost(tuple(cost["step_seconds"]), cost["prediction_seconds"])
            for name, cost in known.items()
            if name not in unknown
        }
        return saved | measured

    def result(self, name: str) -> MethodResult:
        """The result of a method so far."""
        return result_of(self.entrants[name], self.run_of(name), len(self.data.train))

    def results(self) -> list[MethodResult]:
        """The results of all methods, ranked."""
        return ranked(self.result(name) for name in self.entrants)

    def _is_trained(self, name: str) -> bool:
        """Whether the training is complete or has failed."""
        run = self.run_of(name)
        return run.finished or run.failure() is not None

    def _train(self, name: str, listener: Listener) -> None:
        run = self.run_of(name)
        machine: dict[str, Any] = {
            "device": self.device,
            "listener": listener,
            "data": self.data,
            "calibrated": False,
        }
        try:
            with _failing_without_memory(run, "training"):
                if Run.exists(run.folder):
                    resume(run, **machine)
                else:
                    train(self.entrants[name].experiment, run.folder, **machine)
        except FolderInUse:
            raise
        except UserError as error:
            # Another attempt would fail at the same place, so the failure is saved as the result.
            run.save_failure(str(error))

    def _unmeasured(self) -> list[str]:
        """The methods whose memory has not been measured yet."""
        return [name for name in self.entrants if "peak_memory" not in self.run_of(name).cost()]

    def _measure_memory(self, name: str, meter: MemoryMeter) -> None:
        entrant, shape = self.entrants[name], self.data.in_shape
        build = partial(entrant.experiment.create_method, shape, len(self.data.classes))
        cost: dict[str, Any]
        try:
            cost = {"peak_memory": meter.peak(build, entrant.experiment.training, shape)}
        except UserError as error:
            cost = {"peak_memory": None, "memory_failure": str(error)}
        self.run_of(name).add_cost(cost)

    def _test(self) -> None:
        """Evaluates every trained method on the test split, unless it was evaluated before."""
        if self.data.test is None:
            return
        for name in self.entrants:
            run = self.run_of(name)
            if run.finished and run.failure() is None and run.evaluation("test") is None:
                with _failing_without_memory(run, "test"):
                    evaluate_run(run, "test", device=self.device, data=self.data)

    def _refuse_other_settings(self) -> None:
        found = _read(self.folder)
        if found and (difference := found[0].difference(self.settings)):
            raise UserError(f"{self.folder} contains a comparison with {difference}; choose another folder.")


@contextmanager
def _failing_without_memory(run: Run, part: str) -> Iterator[None]:
    """Saves an error that says that memory ran out as the failure of the run. Other errors pass."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        run.save_failure(f"The {part} ran out of memory; use a smaller batch size or network.")


def _read(folder: Path) -> tuple[ComparisonSettings, list[str]] | None:
    """The settings and the methods of the comparison in a folder; None if there is none."""
    files = {folder / SETTINGS: "settings", folder / OLD_SETTINGS: "terms"}
    path = next((path for path in files if path.exists()), None)
    if path is None:
        return None
    found = read_json(path, {files[path]: SCHEMA, "methods": [str]})
    try:
        return ComparisonSettings.from_mapping(found[files[path]]), list(found["methods"])
    except UserError as error:
        reason = shortened(str(error))
        raise UserError(
            f"{path} was written by an older version of hff ({reason}); choose another folder."
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({shortened(str(error))}); choose another folder.") from None
