"""An experiment: a method, a network, a data set, training settings and a seed."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from hff.config import Field, fields_of, resolve, to_builtin
from hff.data import DataSet, datasets, load_data
from hff.errors import UserError, quoted, unknown
from hff.evaluation import calibrate
from hff.methods import Method, create_method, methods
from hff.networks import create_network, networks
from hff.registry import Registry
from hff.training import Listener, Run, Settings, Trainer, fit, pick_device
from hff.training.advice import suitable_batch_size

NOT_DATA_OPTIONS = ("name", "data_dir", "seed", "in_shape", "download")
"""Parameters of `load_data` that are not options of a data set: the experiment or the machine sets them."""

SCALARS = (
    Field("name", str | None, None, "name of the run"),
    Field("seed", int, 0, "seed of all random numbers"),
)


@dataclass(frozen=True)
class Selection:
    """A name from a registry with the values of all its options."""

    name: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """Everything that determines the result of a training, apart from the machine."""

    method: Selection
    network: Selection
    data: Selection
    training: Settings
    seed: int
    name: str
    chooses_batch_size: bool = False
    """Whether no batch size is given, so that it is chosen from the size of the training split."""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Builds an experiment from the content of a recipe.

        `method`, `network` and `data` are each a name, or a mapping with a name and options. All other
        settings are at the top level. Missing settings take their defaults. The error for an unknown setting
        suggests the nearest valid name.
        """
        training = fields_of(Settings)
        valid = _top_level()
        for key in mapping:
            if key not in valid:
                raise unknown("setting", str(key), valid)
        data = select("data", mapping.get("data"))
        # Without the name of a network, the data set chooses one that suits it.
        network = _as_mapping("network", mapping.get("network"), datasets.find(data.name).network)
        parts = {
            "method": select("method", mapping.get("method")),
            "network": select("network", network),
            "data": data,
        }
        scalars = resolve(SCALARS, {key: mapping[key] for key in ("name", "seed") if key in mapping})
        names = {field.name for field in training}
        settings = Settings(**resolve(training, {key: mapping[key] for key in mapping if key in names}))
        default = "_".join(parts[part].name for part in ("data", "network", "method"))
        return cls(
            **parts,
            training=settings,
            seed=scalars["seed"],
            name=scalars["name"] or default,
            chooses_batch_size="batch_size" not in mapping,
        )

    @classmethod
    def from_saved(cls, config: Mapping[str, Any], folder: Path) -> Self:
        """The experiment of a config that was saved in a folder. Obsolete settings are refused."""
        obsolete = _obsolete_settings(config)
        if obsolete:
            raise UserError(
                f"{folder} was written by an older version of hff: the setting {quoted(obsolete[0])} no "
                "longer exists; train again, or install that version to use this folder."
            )
        return cls.from_mapping(config)

    @classmethod
    def from_run(cls, run: Run) -> Self:
        """The experiment of a run."""
        return cls.from_saved(run.config, run.folder)

    def to_mapping(self) -> dict[str, Any]:
        """The inverse of `from_mapping`, with all settings written out, except a batch size to be chosen."""
        selections = {part: getattr(self, part) for part in PARTS}
        parts = {part: {"name": selected.name, **selected.options} for part, selected in selections.items()}
        mapping: dict[str, Any] = to_builtin(
            {"name": self.name, **parts, **asdict(self.training), "seed": self.seed}
        )
        if self.chooses_batch_size:
            del mapping["batch_size"]
        return mapping

    def with_seed(self, seed: int) -> "Experiment":
        """The same experiment with another seed."""
        return replace(self, seed=seed)

    def for_data(self, data: DataSet) -> "Experiment":
        """The same experiment, with a batch size that suits the data if none is given."""
        if not self.chooses_batch_size:
            return self
        training = replace(self.training, batch_size=suitable_batch_size(len(data.train)))
        return replace(self, training=training, chooses_batch_size=False)

    def load_data(self, data_dir: Path | None = None, **changes: Any) -> DataSet:
        """Loads the data, with changes to its options. The seed determines the validation split."""
        options = {**self.data.options, **changes}
        return load_data(self.data.name, data_dir=data_dir, seed=self.seed, **options)

    def create_method(self, in_shape: tuple[int, ...], classes: int) -> Method:
        """The untrained method for inputs [*in_shape]."""
        network = create_network(self.network.name, in_shape, classes, **self.network.options)
        return create_method(self.method.name, network, classes, seed=self.seed, **self.method.options)

    def build(self, data_dir: Path | None = None, data: DataSet | None = None) -> tuple[Method, DataSet]:
        """The untrained method and the data, which are loaded if they are not given."""
        data = data or self.load_data(data_dir)
        return self.create_method(data.in_shape, len(data.classes)), data


def overridden(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe with changes, both in the form that `Experiment.from_mapping` takes.

    If the changes name another method, network or data set, the recipe's options of the old one are dropped.
    The recipe's name is dropped as well, because it would be misleading.
    """
    merged = {**settings, **{key: value for key, value in changes.items() if key not in PARTS}}
    for part in PARTS:
        if part not in changes:
            continue
        old, new = _as_mapping(part, settings.get(part)), _as_mapping(part, changes[part], None)
        if new.get("name", old["name"]) == old["name"]:
            merged[part] = {**old, **new}
        else:
            merged[part] = new
            if "name" not in changes:
                merged.pop("name", None)
    return merged


def data_set_fields(name: str) -> list[Field]:
    """The options of a data set."""
    return fields_of(load_data, hidden=NOT_DATA_OPTIONS)


def method_fields(name: str) -> list[Field]:
    """The options of a method."""
    return fields_of(methods.find(name))


def network_fields(name: str) -> list[Field]:
    """The options of a network."""
    return fields_of(networks.find(name))


@dataclass(frozen=True)
class Part:
    """A part of an experiment that is selected by name."""

    registry: Registry[Any]
    default: str
    fields: Callable[[str], list[Field]]

    @property
    def kind(self) -> str:
        """What the part is called in messages."""
        return self.registry.kind


PARTS = {
    "method": Part(methods, "hff", method_fields),
    "network": Part(networks, "mlp", network_fields),
    "data": Part(datasets, "digits", data_set_fields),
}


def select(part: str, given: Any) -> Selection:
    """A method, network or data set, from its name or from a mapping with its name and options.

    Args:
        part: "method", "network" or "data".
        given: the name, or the mapping; None for the default.
    """
    options = _as_mapping(part, given)
    name = options.pop("name")
    if not isinstance(name, str):
        raise UserError(f"The name of the {PARTS[part].kind} must be text, not {quoted(name)}.")
    PARTS[part].registry.find(name)
    return Selection(name, resolve(PARTS[part].fields(name), options, prefix=f"{part}."))


def _top_level() -> list[str]:
    return [*PARTS, *(field.name for field in (*SCALARS, *fields_of(Settings)))]


def _as_mapping(part: str, given: Any, default: str | None = "") -> dict[str, Any]:
    """A part as a mapping; `method: hff` is short for `method: {name: hff}`.

    Args:
        part: the name of the part.
        given: its name, or a mapping.
        default: the name if none is given. None leaves it out; "" stands for the default of the part.
    """
    if given is None or isinstance(given, str):
        given = {"name": given} if given else {}
    if not isinstance(given, Mapping):
        raise UserError(f"{part} must be a name, or a mapping with a name and options, not {quoted(given)}.")
    return dict(given) if default is None else {"name": default or PARTS[part].default, **given}


def _obsolete_settings(config: Mapping[str, Any]) -> list[str]:
    """The settings of a saved config that do not exist."""
    valid = _top_level()
    found = [str(key) for key in config if key not in valid]
    for part, about in PARTS.items():
        options = _as_mapping(part, config.get(part))
        name = options.pop("name")
        if isinstance(name, str) and name in about.registry:
            names = {field.name for field in about.fields(name)}
            found += [f"{part}.{option}" for option in options if option not in names]
    return found


def train(
    experiment: Experiment,
    out: Path,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    listener: Listener | None = None,
    data: DataSet | None = None,
    calibrated: bool = True,
) -> dict[str, Any]:
    """Trains an experiment in a new run folder and returns the summary.

    Args:
        experiment: the experiment.
        out: the run folder.
        data_dir: the folder of data files.
        device: the device to train on.
        listener: receives the events of the training.
        data: the data of the experiment; loaded if not given.
        calibrated: fit at the end the scales that turn scores into probabilities. Otherwise, they are fitted
            when the run is first evaluated or used to predict.
    """
    method, data = experiment.build(data_dir, data)
    if experiment.chooses_batch_size:
        experiment = experiment.for_data(data)
        if listener is not None:
            listener.batch_size_chosen(experiment.training.batch_size)
    if Run.exists(out):
        raise UserError(f"{out} already contains a run; resume it, or choose another folder.")
    # Settings that the method cannot be trained with are refused before there is a run folder.
    Trainer(method, experiment.training)
    run = Run(out)
    with run.lock:
        Run.create(out, experiment.to_mapping(), data)
        return _fit(experiment, method, data, run, device, listener, calibrated)


def resume(
    run: Run,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    listener: Listener | None = None,
    data: DataSet | None = None,
    epochs: int | None = None,
    calibrated: bool = True,
) -> dict[str, Any]:
    """Resumes a run from its last checkpoint and returns the summary, also if the run is already finished.

    Args:
        run: the run.
        data_dir: the folder of data files.
        device: the device to train on.
        listener: receives the events of the training.
        data: the data of the run; loaded if not given.
        epochs: if given, the number of epochs of the run is raised to it, also if the run is finished. The
            learning rate schedule is computed for the new number of epochs: with a schedule other than
            constant, the learning rate jumps to its value at the completed share of the longer training.
            Saved evaluations are removed, because they describe the shorter training.
        calibrated: as in `train`.
    """
    summary = run.summary()
    if summary is not None and epochs is None:
        return summary
    experiment = Experiment.from_run(run)
    if epochs is not None:
        experiment = extended(experiment, epochs, run.folder)
    method, data = experiment.build(data_dir, data)
    with run.lock:
        if epochs is not None:
            if len([stage for stage in method.stages(epochs) if stage.epochs]) > 1:
                raise UserError(
                    f"{run.folder} trains its layers in several stages, and a finished stage cannot be "
                    f"trained on; train again with epochs {epochs}."
                )
            run.reopen(experiment.to_mapping())
        return _fit(experiment, method, data, run, device, listener, calibrated)


def extended(experiment: Experiment, epochs: int, folder: Path) -> Experiment:
    """The experiment of a folder with a larger number of epochs."""
    before = experiment.training
    if before.seconds is not None:
        raise UserError(f"{folder} has a time budget of {before.seconds:g} s, not a number of epochs.")
    if epochs < before.epochs:
        raise UserError(f"{folder} is trained for {before.epochs} epochs; give at least as many.")
    return replace(experiment, training=replace(before, epochs=epochs))


def _fit(
    experiment: Experiment,
    method: Method,
    data: DataSet,
    run: Run,
    device: str,
    listener: Listener | None,
    calibrated: bool,
) -> dict[str, Any]:
    summary = fit(
        method,
        data,
        experiment.training,
        seed=experiment.seed,
        device=device,
        run=run,
        listener=listener or Listener(),
    )
    if calibrated:
        run.save_calibration(calibrate(method, data, device=pick_device(device)))
    return summary
