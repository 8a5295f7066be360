"""A run group: one experiment with several seeds in one folder, with the mean and spread of their results."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hff.errors import UserError
from hff.evaluation import Split
from hff.experiment import Experiment, extended, resume, train
from hff.files import read_json
from hff.trained import evaluate_run
from hff.training import Listener, Run
from hff.training.checkpoint import create_folder
from hff.training.lock import FolderLock
from hff.training.run import evaluation_file, with_current_names, write_json

SEEDS, SUMMARY = "seeds.json", "summary.json"
SCHEMA = {"seeds": [int], "config": dict}
"""What seeds.json must contain."""


class RunGroup:
    """The runs of one experiment with several seeds, each in its own folder inside the group's folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.lock = FolderLock(self.folder)
        """Entered while the runs are trained. A second process that enters it gets an error."""

    @staticmethod
    def exists(folder: Path | str) -> bool:
        """Whether the folder contains a run group."""
        return (Path(folder) / SEEDS).is_file()

    @classmethod
    def create(cls, folder: Path | str, experiment: Experiment, seeds: Sequence[int]) -> "RunGroup":
        """Starts a group in a folder, which must not contain runs yet."""
        if len(set(seeds)) < len(seeds) or not seeds:
            raise UserError(f"Give at least one seed, and each seed once, not {list(seeds)}.")
        group = cls(folder)
        if Run.exists(folder) or (cls.exists(folder) and group.runs()):
            raise UserError(f"{folder} already contains runs; resume them, or choose another folder.")
        create_folder(group.folder)
        write_json(group.folder / SEEDS, {"seeds": list(seeds), "config": experiment.to_mapping()})
        return group

    @classmethod
    def open(cls, folder: Path | str) -> "RunGroup":
        """An existing group."""
        if not cls.exists(folder):
            raise UserError(f"{folder} does not contain runs with several seeds: it has no {SEEDS}.")
        return cls(folder)

    @property
    def seeds(self) -> list[int]:
        """The seeds, including those that have not been trained yet."""
        return list(self._read()["seeds"])

    @property
    def experiment(self) -> Experiment:
        """The experiment that all runs share, apart from the seed."""
        config = with_current_names(self._read()["config"])
        return Experiment.from_saved(config, self.folder)

    def runs(self) -> dict[int, Run]:
        """The runs that have been started, by seed."""
        runs = {seed: self._run(seed) for seed in self.seeds}
        return {seed: run for seed, run in runs.items() if Run.exists(run.folder)}

    def train(
        self,
        *,
        data_dir: Path | None = None,
        device: str = "auto",
        listener: Callable[[int], Listener] = lambda seed: Listener(),
        epochs: int | None = None,
    ) -> dict[str, Any]:
        """Trains every seed that is not finished, and saves the mean and spread of all summaries.

        Args:
            data_dir: the folder of data files.
            device: the device to train on.
            listener: returns the listener for the run of a seed.
            epochs: if given, the number of epochs of the group is raised to it, as by `resume`.
        """
        with self.lock:
            return self._train(data_dir, device, listener, epochs)

    def _train(
        self,
        data_dir: Path | None,
        device: str,
        listener: Callable[[int], Listener],
        epochs: int | None,
    ) -> dict[str, Any]:
        if epochs is not None:
            config = extended(self.experiment, epochs, self.folder).to_mapping()
            write_json(self.folder / SEEDS, {"seeds": self.seeds, "config": config})
        started, summaries = self.runs(), []
        for seed in self.seeds:
            machine: dict[str, Any] = {"data_dir": data_dir, "device": device, "listener": listener(seed)}
            if seed in started:
                summary = resume(started[seed], epochs=epochs, **machine)
            else:
                summary = train(self.experiment.with_seed(seed), self._run(seed).folder, **machine)
            summaries.append({**summary, "seed": None})
        combined = {"seeds": self.seeds, **spread(summaries)}
        write_json(self.folder / SUMMARY, combined)
        return combined

    def evaluate(
        self,
        split: Split | None = None,
        *,
        path: Path | None = None,
        data_dir: Path | None = None,
        device: str = "auto",
    ) -> dict[str, Any]:
        """Evaluates every run that has been started, and returns the mean and spread of the results.

        They are saved, unless the data is new. The confusion matrices are only saved with the individual
        runs. The parameters are those of `evaluate_run`.
        """
        runs = self.runs()
        if not runs:
            raise UserError(f"No run in {self.folder} has been started yet; train it first.")
        results = [
            evaluate_run(run, split, path=path, data_dir=data_dir, device=device).to_json()
            for run in runs.values()
        ]
        for result in results:
            del result["confusion"]
        combined = {"seeds": list(runs), **spread(results)}
        if path is None:
            write_json(self.folder / evaluation_file(combined["split"]), combined)
        return combined

    def _read(self) -> dict[str, Any]:
        path = self.folder / SEEDS
        found = read_json(path, SCHEMA)
        if len(set(found["seeds"])) < max(1, len(found["seeds"])):
            raise UserError(f"{path} is damaged: 'seeds' must contain at least one seed, and each seed once.")
        return found

    def _run(self, seed: int) -> Run:
        return Run(self.folder / f"seed-{seed}")


def spread(results: Sequence[Any]) -> Any:
    """Combines several results into one.

    Numbers become {mean, std}. Other values are kept if they are equal in all results, and dropped otherwise.
    The standard deviation is that of a sample (n - 1). It is None if there is only one result.
    """
    first = results[0]
    if isinstance(first, dict):
        keys = [key for key in first if all(key in result for result in results)]
        combined = {key: spread([result[key] for result in results]) for key in keys}
        return {key: value for key, value in combined.items() if value is not None}
    if isinstance(first, list | tuple) and len({len(result) for result in results}) == 1:
        return [spread(items) for items in zip(*results, strict=True)]
    if isinstance(first, float) or (isinstance(first, int) and any(result != first for result in results)):
        std = statistics.stdev(results) if len(results) > 1 else None
        return {"mean": statistics.fmean(results), "std": std}
    return first if all(result == first for result in results) else None
