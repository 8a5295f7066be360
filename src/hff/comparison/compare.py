"""The comparison: a folder with a run of every method, and the table of all of them."""

import json
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from hff.bench.cost import peak_memory
from hff.bench.estimate import Cost, Estimate, estimate, measure_costs
from hff.comparison.entrants import find_entrants
from hff.comparison.results import COST, FAILURE, MethodResult, as_csv, as_markdown, ranked, row_of
from hff.comparison.settings import ComparisonSettings
from hff.data import load_data
from hff.errors import UserError, unknown
from hff.experiment import evaluate_run, evaluation_file, resume, train
from hff.methods import methods
from hff.training import Listener, Run, pick_device
from hff.training.checkpoint import write_atomically

TERMS = "terms.json"
TABLE, PAGE, FIGURE = "comparison.csv", "comparison.md", "comparison.png"


class ComparisonListener:
    """Hears how a comparison goes; this one ignores it."""

    def measuring(self, count: int) -> None:
        """A few steps and predictions of so many methods are about to be timed."""

    def planned(self, estimate: Estimate) -> None:
        """Nothing is trained yet, but it is known how long it will take."""

    def listener(self, method: str, number: int) -> Listener:
        """A method begins, the `number`-th of all, from 1 on: who shall hear about its training?"""
        return Listener()

    def trained(self, row: MethodResult, number: int) -> None:
        """A method is trained, or has failed."""


class Comparison:
    """Methods on equal terms in one folder; what is done already is not done again."""

    def __init__(
        self,
        folder: Path,
        terms: ComparisonSettings,
        names: Sequence[str] | None = None,
        *,
        data_dir: Path | None = None,
        device: str = "auto",
    ) -> None:
        """names: the methods, all registered ones if None; data_dir, device: as for a training."""
        names = sorted(methods) if names is None else list(dict.fromkeys(names))
        for name in names:
            if name not in methods:
                raise unknown("method", name, methods)
        if not names:
            raise UserError("There is no method to compare; name one at least.")
        self.folder, self.terms, self.names = folder, terms, names
        self._refuse_other_terms()
        self.device = device
        self.data = load_data(terms.data.name, data_dir=data_dir, seed=terms.seed, **terms.data.options)
        if self.data.validation is None:
            raise UserError("A comparison ranks on validation examples; set data.validation above 0.")
        self.entrants, self.unsupported = find_entrants(
            terms, names, self.data.in_shape, len(self.data.classes)
        )
        if not self.entrants:
            raise UserError(next(iter(self.unsupported.values())))

    @classmethod
    def open(cls, folder: Path, *, data_dir: Path | None = None, device: str = "auto") -> "Comparison":
        """The comparison that a folder holds."""
        found = _read(folder)
        if found is None:
            raise UserError(f"{folder} holds no comparison: it has no {TERMS}.")
        terms, names = found
        return cls(folder, terms, names, data_dir=data_dir, device=device)

    def run_of(self, name: str) -> Run:
        """The run folder of a method."""
        return Run(self.folder / name)

    def run(self, listener: ComparisonListener | None = None) -> list[MethodResult]:
        """Trains what is not trained yet, then tests what is not tested yet; gives all rows, ranked."""
        listener = listener or ComparisonListener()
        self.folder.mkdir(parents=True, exist_ok=True)
        terms = {"terms": self.terms.to_mapping(), "methods": self.names}
        write_atomically(self.folder / TERMS, json.dumps(terms, indent=2) + "\n")
        listener.measuring(len(self.entrants))
        listener.planned(self.estimate())
        for number, name in enumerate(self.entrants, 1):
            if not self._settled(name):
                self._train(name, listener.listener(name, number))
            self._measure_memory(name)
            listener.trained(self.row(name), number)
        self._test()
        rows = self.rows()
        write_atomically(self.folder / TABLE, as_csv(rows))
        write_atomically(self.folder / PAGE, as_markdown(rows, self.unsupported, self.terms))
        return rows

    def estimate(self) -> Estimate:
        """How long the rest takes, from what a few steps, predictions and one measured memory took."""
        data = self.data
        sizes = {
            "train": len(data.train),
            "validation": len(data.validation or ()),
            "test": len(data.test or ()),
        }
        total = Estimate()
        for name, entrant in self.entrants.items():
            if not self._settled(name):
                at = self.run_of(name).position()
                total += estimate(entrant, self.costs[name], **sizes, spent=at.spent, seen=at.samples)
        unmeasured = [name for name in self.entrants if "peak_memory" not in self._cost(name)]
        if unmeasured:
            # Most of that is the start of a fresh process, which takes the same for all.
            started = time.perf_counter()
            self._measure_memory(unmeasured[0])
            total += Estimate(memory=(len(unmeasured) - 1) * (time.perf_counter() - started))
        return total

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """What each method takes on this machine; what was measured earlier stays."""
        known = {name: self._cost(name) for name in self.entrants}
        missing = [self.entrants[name] for name, cost in known.items() if "step_seconds" not in cost]
        measured = measure_costs(
            missing, self.data.in_shape, len(self.data.classes), pick_device(self.device)
        )
        for name, cost in measured.items():
            self._add_cost(name, asdict(cost))
        return {
            name: measured[name]
            if name in measured
            else Cost(tuple(cost["step_seconds"]), cost["prediction_seconds"])
            for name, cost in known.items()
        }

    def row(self, name: str) -> MethodResult:
        """What is known about a method."""
        return row_of(self.entrants[name], self.run_of(name), len(self.data.train))

    def rows(self) -> list[MethodResult]:
        """All methods, ranked."""
        return ranked(self.row(name) for name in self.entrants)

    def _settled(self, name: str) -> bool:
        """Whether there is nothing left to train."""
        return self.run_of(name).finished or (self.folder / name / FAILURE).exists()

    def _train(self, name: str, listener: Listener) -> None:
        run = self.run_of(name)
        machine: dict[str, Any] = {"device": self.device, "listener": listener, "data": self.data}
        try:
            if (run.folder / "config.yaml").exists():
                resume(run, **machine)
            else:
                train(self.entrants[name].experiment, run.folder, **machine)
        except UserError as error:
            # It would fail at the same place again, so this is its result.
            run.write_json(FAILURE, {"reason": str(error)})

    def _measure_memory(self, name: str) -> None:
        if "peak_memory" in self._cost(name):
            return
        entrant, shape = self.entrants[name], self.data.in_shape
        build = partial(entrant.experiment.create_method, shape, len(self.data.classes))
        try:
            peak: int | None = peak_memory(build, entrant.experiment.training, shape)
        except (UserError, BrokenProcessPool):
            # Not every system tells, nor has the memory.
            peak = None
        self._add_cost(name, {"peak_memory": peak})

    def _test(self) -> None:
        """Reads the test split once for every method, when all are trained."""
        if self.data.test is None:
            return
        for name in self.entrants:
            run = self.run_of(name)
            if run.finished and not (run.folder / evaluation_file("test")).exists():
                evaluate_run(run, "test", device=self.device, data=self.data)

    def _cost(self, name: str) -> dict[str, Any]:
        run = self.run_of(name)
        return run.read_json(COST) if (run.folder / COST).exists() else {}

    def _add_cost(self, name: str, cost: dict[str, Any]) -> None:
        run = self.run_of(name)
        run.folder.mkdir(parents=True, exist_ok=True)
        run.write_json(COST, {**self._cost(name), **cost})

    def _refuse_other_terms(self) -> None:
        found = _read(self.folder)
        if found and (difference := found[0].difference(self.terms)):
            raise UserError(
                f"{self.folder} holds a comparison with {difference}; choose another folder with --out."
            )


def _read(folder: Path) -> tuple[ComparisonSettings, list[str]] | None:
    path = folder / TERMS
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return ComparisonSettings.from_mapping(found["terms"]), found["methods"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}); choose another folder with --out.") from None
