"""A comparison: a folder with a run of every method, and a table of their results."""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from hff.bench.cost import trained_stages
from hff.bench.estimate import Cost, Estimate, estimate, measure_costs, measuring_seconds
from hff.bench.memory import MemoryMeter, is_out_of_memory
from hff.comparison.entrants import Entrant, entries_of, find_entrants
from hff.comparison.listener import ComparisonListener
from hff.comparison.ranking import ranked
from hff.comparison.rates import RateSearch, Trial, trial_of, trials_csv
from hff.comparison.result import MethodResult, result_of
from hff.comparison.results import as_csv, as_markdown
from hff.comparison.saved import SETTINGS, read_comparison
from hff.comparison.settings import PROTOCOL, ComparisonSettings
from hff.data import DataSet, load_data
from hff.errors import UserError
from hff.experiment import Experiment, Selection, resume, train
from hff.trained import evaluate_run
from hff.training import Listener, Run, pick_device
from hff.training.checkpoint import create_folder, write_atomically
from hff.training.lock import FolderInUse, FolderLock
from hff.training.run import write_json

TABLE, PAGE, FIGURE, TRIALS = "comparison.csv", "comparison.md", "comparison.png", "trials.csv"
TRIAL_FOLDER = "trials"
"""The folder of an entrant's trials, inside its own folder."""

METHOD_SECONDS, FIGURE_SECONDS = 0.4, 0.7
"""What does not depend on the budget: the files and the scales of a method, and drawing the figure."""


class Comparison:
    """Several methods trained with the same settings, in one folder. Finished work is not repeated.

    Args:
        folder: the folder of the comparison. If it contains one already, its settings must be the same.
        settings: the settings that all methods share.
        names: the methods; None for all registered ones. A method with options is written as in
            "hff:temperature=5", or is a `Selection("hff", {"temperature": 5})`.
        data_dir: the folder of data files.
        device: the device to train on.
    """

    def __init__(
        self,
        folder: Path,
        settings: ComparisonSettings,
        names: Sequence[str | Selection] | None = None,
        *,
        data_dir: Path | None = None,
        device: str = "auto",
    ) -> None:
        self.entries = entries_of(names)
        self.folder, self.settings, self.names = folder, settings, list(self.entries)
        self._other: tuple[int, DataSet] | None = None
        self.lock = FolderLock(folder)
        """Entered while the comparison runs. A second process that enters it gets an error."""
        self._refuse_other_settings()
        self.device, self.data_dir = device, data_dir
        self.data = self._load_data(settings.seed)
        """The data with the validation split of the first seed."""
        if self.data.validation is None:
            raise UserError("A comparison ranks on validation examples; set data.validation above 0.")
        self.settings = settings = settings.for_data(self.data)
        self.entrants, self.unsupported = find_entrants(settings, self.entries.values(), self.data)
        if not self.entrants:
            raise UserError(next(iter(self.unsupported.values())))

    @classmethod
    def open(cls, folder: Path, *, data_dir: Path | None = None, device: str = "auto") -> "Comparison":
        """The comparison in a folder."""
        found = read_comparison(folder)
        if found is None:
            raise UserError(f"{folder} does not contain a comparison: it has no {SETTINGS}.")
        settings, names = found
        return cls(folder, settings, names, data_dir=data_dir, device=device)

    def run_of(self, name: str, seed: int | None = None) -> Run:
        """The run of an entrant with a seed; None stands for the first seed."""
        folder = self.folder / self.entries[name].folder
        return Run(folder if seed in (None, self.settings.seed) else folder / f"seed-{seed}")

    def trial_run(self, name: str, rate: float) -> Run:
        """The run of a trial of an entrant."""
        return Run(self.folder / self.entries[name].folder / TRIAL_FOLDER / f"{rate:g}")

    def run(self, listener: ComparisonListener | None = None) -> list[MethodResult]:
        """Trains the methods that are not trained yet, then tests those that are not tested yet.

        Returns the results of all methods, ranked.
        """
        with self.lock:
            return self._run(listener or ComparisonListener())

    def _run(self, listener: ComparisonListener) -> list[MethodResult]:
        create_folder(self.folder)
        saved = {"protocol": PROTOCOL, "settings": self.settings.to_mapping(), "methods": self.names}
        write_json(self.folder / SETTINGS, saved)
        listener.measuring(len(self.entrants))
        # The process that measures memory ends before the first training, which may need all of the memory.
        with MemoryMeter() as meter:
            listener.planned(self._estimate(meter))
            for name in self._unmeasured():
                self._measure_memory(name, meter)
        for name in self.entrants:
            self._search(name, listener)
        number = 0
        for seed in self.settings.all_seeds:
            for name in self.entrants:
                number += 1
                run = self.run_of(name, seed)
                if not _is_trained(run):
                    self._train(run, self.experiment(name, seed), listener.listener(name, number))
                listener.trained(self.result(name, [seed]), number)
        self._test()
        results = self.results()
        write_atomically(self.folder / TABLE, as_csv(results))
        write_atomically(self.folder / PAGE, as_markdown(results, self.unsupported, self.settings))
        if self.settings.rates != "declared":
            trials = [trial for name in self.entrants for trial in self.trials(name)]
            write_atomically(self.folder / TRIALS, trials_csv(trials))
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
            cost = self.costs.get(name)
            for seed in self.settings.all_seeds:
                run = self.run_of(name, seed)
                if not _is_trained(run):
                    at = run.position()
                    total += estimate(entrant, cost, **sizes, spent=at.spent, seen=at.samples)
                    total += Estimate(evaluation=METHOD_SECONDS)
            for rate in self._search_of(name).first:
                run = self.trial_run(name, rate)
                if not _is_trained(run):
                    at, trial = run.position(), self._short(name, rate)
                    total += estimate(trial, cost, **{**sizes, "test": 0}, spent=at.spent, seen=at.samples)
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
        unknown = {entrant.name for entrant in missing}
        saved = {
            name: Cost(tuple(cost["step_seconds"]), cost["prediction_seconds"])
            for name, cost in known.items()
            if name not in unknown
        }
        return saved | measured

    def result(self, name: str, seeds: Sequence[int] | None = None) -> MethodResult:
        """The result of an entrant so far, with these seeds; None stands for all."""
        runs = [self.run_of(name, seed) for seed in seeds or self.settings.all_seeds]
        # The costs are measured once and saved with the first seed.
        costs = self.run_of(name).cost()
        tried = self._accuracies(name)
        search = self._search_of(name)
        return result_of(
            self.entrants[name],
            runs,
            costs,
            len(self.data.train),
            learning_rate=self.rate(name),
            trials=len(tried),
            rate_at_edge=search.at_edge(tried),
        )

    def results(self) -> list[MethodResult]:
        """The results of all methods, ranked."""
        return ranked(self.result(name) for name in self.entrants)

    def rate(self, name: str) -> float:
        """The learning rate of an entrant; the declared one until its trials are complete."""
        search, tried = self._search_of(name), self._accuracies(name)
        return search.best(tried) if tried and search.next(tried) is None else search.declared

    def experiment(self, name: str, seed: int) -> Experiment:
        """The training of an entrant with a seed and the chosen learning rate."""
        experiment = self.entrants[name].experiment
        training = replace(experiment.training, learning_rate=self.rate(name))
        return replace(experiment, training=training).with_seed(seed)

    def trials(self, name: str) -> list[Trial]:
        """The complete trials of an entrant, by learning rate."""
        tried, chosen = self._accuracies(name), self.rate(name)
        found = []
        for rate in sorted(tried):
            run, accuracy = self.trial_run(name, rate), tried[rate]
            found.append(
                Trial(
                    name,
                    rate,
                    None if accuracy is None else round(100 * accuracy, 2),
                    rate == chosen,
                    round(run.position().spent, 3),
                    round(run.position().samples / len(self.data.train), 2),
                    run.failure(),
                )
            )
        return found

    def _search_of(self, name: str) -> RateSearch:
        return RateSearch(self.entrants[name].experiment.training.learning_rate, self.settings.rates)

    def _accuracies(self, name: str) -> dict[float, float | None]:
        """The validation accuracy of each rate that was tried; None if the training failed."""
        search = self._search_of(name)
        tried: dict[float, float | None] = {}
        while (rate := search.next(tried)) is not None:
            run = self.trial_run(name, rate)
            if not _is_trained(run):
                break
            tried[rate] = None if run.failure() else (run.summary() or {}).get("read_out_accuracy")
        return tried

    def _search(self, name: str, listener: ComparisonListener) -> None:
        """Tries learning rates until the search is over."""
        search = self._search_of(name)
        if not search.first:
            return
        while (rate := search.next(tried := self._accuracies(name))) is not None:
            run = self.trial_run(name, rate)
            with warnings.catch_warnings():
                # A trial with a rate that is too low or too high need not learn.
                warnings.filterwarnings("ignore", message="The training did not learn")
                heard = listener.trial(name, rate, len(tried) + 1)
                self._train(run, self._short(name, rate).experiment, heard)
        listener.tried(self.trials(name))

    def _short(self, name: str, rate: float) -> Entrant:
        """An entrant with the budget and the learning rate of a trial."""
        entrant = self.entrants[name]
        experiment = trial_of(entrant.experiment, rate)
        method = experiment.create_method(self.data.in_shape, len(self.data.classes))
        stages = tuple(trained_stages(method, experiment.training))
        return replace(entrant, experiment=experiment, stages=stages)

    def _load_data(self, seed: int) -> DataSet:
        selected = self.settings.data
        return load_data(selected.name, data_dir=self.data_dir, seed=seed, **selected.options)

    def _data_of(self, seed: int) -> DataSet:
        """The data with the validation split of a seed. Only the splits of one further seed are kept."""
        if seed == self.settings.seed:
            return self.data
        if self._other is None or self._other[0] != seed:
            self._other = None
            self._other = (seed, self._load_data(seed))
        return self._other[1]

    def _train(self, run: Run, experiment: Experiment, listener: Listener) -> None:
        machine: dict[str, Any] = {
            "device": self.device,
            "listener": listener,
            "data": self._data_of(experiment.seed),
            "calibrated": False,
        }
        try:
            with _failing_without_memory(run, "training"):
                if Run.exists(run.folder):
                    resume(run, **machine)
                else:
                    train(experiment, run.folder, **machine)
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
        for seed in self.settings.all_seeds:
            for name in self.entrants:
                run = self.run_of(name, seed)
                if run.finished and run.failure() is None and run.evaluation("test") is None:
                    with _failing_without_memory(run, "test"):
                        evaluate_run(run, "test", device=self.device, data=self._data_of(seed))

    def _refuse_other_settings(self) -> None:
        found = read_comparison(self.folder)
        if found and (difference := found[0].difference(self.settings)):
            raise UserError(f"{self.folder} contains a comparison with {difference}; choose another folder.")


def _is_trained(run: Run) -> bool:
    """Whether the training is complete or has failed."""
    return run.finished or run.failure() is not None


@contextmanager
def _failing_without_memory(run: Run, part: str) -> Iterator[None]:
    """Saves an error that says that memory ran out as the failure of the run. Other errors pass."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        run.save_failure(f"The {part} ran out of memory; use a smaller batch size or network.")
