"""One run of a report. Everything about it is read, or computed, when a section first asks for it."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hff.data import DataSet
from hff.evaluation import Calibration
from hff.experiment import Experiment
from hff.explain import ActivationMaps, Answers, Embedding, activation_maps, answers_on, embedding
from hff.explain.answers import Kind
from hff.explain.maps import picked
from hff.files import read_json
from hff.methods import Method
from hff.paper import Claim, claimed, find
from hff.trained import calibration_of, evaluate_run, evaluation_data, load_method
from hff.training import Run, pick_device
from hff.training.schemas import ENVIRONMENT, SCHEMAS


class Subject:
    """A run with its data and results.

    Args:
        run: the run.
        name: what the report calls it.
        group: the name of the folder of several seeds that the run is in; None if it is in none.
        split: the split to report on.
        data_dir: the folder of data files.
        device: the device to compute on.
    """

    def __init__(
        self,
        run: Run,
        name: str | None = None,
        *,
        group: str | None = None,
        split: str = "test",
        data_dir: Path | None = None,
        device: str = "auto",
    ) -> None:
        self.run = run
        self.name = name or run.folder.name
        self.group = group
        self.split = split
        self.data_dir = data_dir
        self.device = device

    @cached_property
    def experiment(self) -> Experiment:
        """The method, network, data and settings of the run."""
        return Experiment.from_run(self.run)

    @cached_property
    def method(self) -> Method:
        """The trained method."""
        return load_method(self.run).to(pick_device(self.device))

    @cached_property
    def data(self) -> DataSet:
        """The data of the run."""
        return evaluation_data(self.run, data_dir=self.data_dir)[0]

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One record per epoch."""
        return self.run.metrics()

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The result of the training; empty for an unfinished run."""
        return self.run.summary() or {}

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The command, versions and hardware of the training."""
        path = self.run.folder / ENVIRONMENT
        return read_json(path, SCHEMAS[ENVIRONMENT]) if path.exists() else {}

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """The evaluation on the split, as `hff eval` saves it; computed and saved if it is not there yet."""
        found = self.run.evaluation(self.split) if self.run.finished else None
        if found is None or "confusion" not in found:
            split: Any = self.split
            result = evaluate_run(self.run, split, data_dir=self.data_dir, device=self.device, data=self.data)
            found = result.to_json()
        return found

    @cached_property
    def calibration(self) -> Calibration:
        """The scales that turn scores into probabilities."""
        return calibration_of(self.run, self.method, data=self.data, device=self.device)

    @cached_property
    def answers(self) -> Answers:
        """What every layer answers on the split."""
        device = pick_device(self.device)
        return answers_on(self.method, self.data, self.split, calibration=self.calibration, device=device)

    def maps(self, kind: Kind, count: int) -> ActivationMaps:
        """The activation maps of images of a kind."""
        chosen = picked(self.data, self.split, self.answers.choose(kind, count), kind)
        return activation_maps(self.method, chosen.inputs, labels=chosen.labels, calibration=self.calibration)

    def embedding(
        self, projection: Any = "auto", epochs: Sequence[int] | None = None, samples: int = 1000
    ) -> Embedding:
        """The feature space; by default, also that of the epochs whose checkpoints were kept."""
        shown = self.run.kept_epochs() if epochs is None else epochs
        return embedding(
            self.run, self.data, projection=projection, samples=samples, epochs=shown, device=self.device
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.run.classes

    @property
    def claim(self) -> Claim | None:
        """The accuracy that the paper prints for this method, data set and kind of network."""
        experiment = self.experiment
        return claimed(experiment.method.name, experiment.data.name, experiment.network.name)

    @property
    def layer_claims(self) -> tuple[Claim, ...]:
        """The accuracies of single layers that the paper prints for this data set and network."""
        experiment = self.experiment
        if experiment.method.name != "hff":
            return ()
        found = find(table="layer_accs", data=experiment.data.name, network=experiment.network.name)
        # The rows of transfer have names such as C10-train.
        return tuple(claim for claim in found if "-" not in claim.row)
