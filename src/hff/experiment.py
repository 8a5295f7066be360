"""An experiment: which method trains which network on which data, how long and from which seed."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from hff.config import Field, fields_of, resolve, to_builtin
from hff.data import DataSet, datasets, load_data
from hff.errors import UserError, unknown
from hff.evaluation import Evaluation, Split, evaluate
from hff.methods import Method, create_method, methods
from hff.networks import create_network, networks
from hff.training import Listener, Run, Settings, fit, pick_device

OF_THE_MACHINE = ("name", "data_dir", "seed", "download")
"""Parameters of `load` that the experiment as a whole or the machine decides."""

SCALARS = (
    Field("name", str | None, None, "name of the run"),
    Field("seed", int, 0, "what all randomness hangs on"),
)


@dataclass(frozen=True)
class Selection:
    """A name from a registry with the options that belong to it, every one of them filled in."""

    name: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """All that decides the result of a training, apart from the machine."""

    method: Selection
    network: Selection
    data: Selection
    training: Settings
    seed: int
    name: str

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """From YAML or flags: three parts, each a name or a mapping with a name; all else at the top level.

        What is left out takes its default; what is unknown is refused with the nearest valid name.
        """
        training = fields_of(Settings)
        valid = [*PARTS, *(field.name for field in (*SCALARS, *training))]
        for key in mapping:
            if key not in valid:
                raise unknown("setting", str(key), valid)
        parts = {part: _choice(part, mapping.get(part)) for part in PARTS}
        scalars = resolve(SCALARS, {key: mapping[key] for key in ("name", "seed") if key in mapping})
        names = {field.name for field in training}
        settings = Settings(**resolve(training, {key: mapping[key] for key in mapping if key in names}))
        default = "_".join(parts[part].name for part in ("data", "network", "method"))
        return cls(**parts, training=settings, seed=scalars["seed"], name=scalars["name"] or default)

    def to_mapping(self) -> dict[str, Any]:
        """The same, fully written out; `from_mapping` undoes it."""
        parts = {part: getattr(self, part) for part in PARTS}
        chosen = {part: {"name": choice.name, **choice.options} for part, choice in parts.items()}
        mapping: dict[str, Any] = to_builtin(
            {"name": self.name, **chosen, **asdict(self.training), "seed": self.seed}
        )
        return mapping

    def with_seed(self, seed: int) -> "Experiment":
        return replace(self, seed=seed)

    def load_data(self, data_dir: Path | None = None) -> DataSet:
        """The data; the seed decides which examples are held out for validation."""
        return load_data(self.data.name, data_dir=data_dir, seed=self.seed, **self.data.options)

    def create_method(self, in_shape: tuple[int, ...], classes: int) -> Method:
        """The untrained method, for inputs [*in_shape]."""
        network = create_network(self.network.name, in_shape, classes, **self.network.options)
        return create_method(self.method.name, network, classes, seed=self.seed, **self.method.options)

    def build(self, data_dir: Path | None = None, data: DataSet | None = None) -> tuple[Method, DataSet]:
        """The untrained method and the data, which are loaded unless they are given."""
        data = data or self.load_data(data_dir)
        return self.create_method(data.in_shape, len(data.classes)), data


def overridden(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe with changes on top, both as `Experiment.from_mapping` takes them.

    Where another method, network or data set is named, the recipe's options of the old one fall away, and so
    does the recipe's name: it would promise something else.
    """
    merged = {**settings, **{key: value for key, value in changes.items() if key not in PARTS}}
    for part in PARTS:
        if part not in changes:
            continue
        old, new = _as_mapping(part, settings.get(part)), _as_mapping(part, changes[part], named=False)
        if new.get("name", old["name"]) == old["name"]:
            merged[part] = {**old, **new}
        else:
            merged[part] = new
            if "name" not in changes:
                merged.pop("name", None)
    return merged


def data_set_fields(name: str) -> list[Field]:
    return fields_of(load_data, hidden=OF_THE_MACHINE)


def method_fields(name: str) -> list[Field]:
    return fields_of(methods[name])


def network_fields(name: str) -> list[Field]:
    return fields_of(networks[name])


@dataclass(frozen=True)
class Part:
    """One of the three things that are chosen by name."""

    kind: str
    registry: Mapping[str, Any]
    default: str
    fields: Callable[[str], list[Field]]


PARTS = {
    "method": Part("method", methods, "hff", method_fields),
    "network": Part("network", networks, "mlp", network_fields),
    "data": Part("data set", datasets, "digits", data_set_fields),
}


def _as_mapping(part: str, given: Any, named: bool = True) -> dict[str, Any]:
    """A part as a mapping; `method: hff` is short for `method: {name: hff}`."""
    if given is None or isinstance(given, str):
        given = {"name": given} if given else {}
    if not isinstance(given, Mapping):
        raise UserError(f"{part} must be a name, or a mapping with a name and options, not {given!r}.")
    return {"name": PARTS[part].default, **given} if named else dict(given)


def _choice(part: str, given: Any) -> Selection:
    options = _as_mapping(part, given)
    name, about = options.pop("name"), PARTS[part]
    if not isinstance(name, str) or name not in about.registry:
        raise unknown(about.kind, str(name), about.registry)
    return Selection(name, resolve(about.fields(name), options, prefix=f"{part}."))


def train(
    experiment: Experiment,
    out: Path,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    listener: Listener | None = None,
    data: DataSet | None = None,
) -> dict[str, Any]:
    """Trains an experiment into a new run folder and gives the summary."""
    method, data = experiment.build(data_dir, data)
    run = Run.create(out, experiment.to_mapping(), data)
    return _fit(experiment, method, data, run, device, listener)


def resume(
    run: Run,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    listener: Listener | None = None,
    data: DataSet | None = None,
) -> dict[str, Any]:
    """Goes on with a run from its last checkpoint; a finished run just gives its summary."""
    summary = run.summary()
    if run.finished and summary is not None:
        return summary
    experiment = Experiment.from_mapping(run.config)
    method, data = experiment.build(data_dir, data)
    return _fit(experiment, method, data, run, device, listener)


def load_method(run: Run) -> Method:
    """The trained method of a run, in evaluation mode."""
    method = Experiment.from_mapping(run.config).create_method(run.preprocessing.size, len(run.classes))
    run.load_weights(method)
    return method.eval()


def evaluate_run(
    run: Run,
    split: Split = "test",
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    data: DataSet | None = None,
) -> Evaluation:
    """Evaluates a run on a split and leaves the answer in its folder."""
    data = data or Experiment.from_mapping(run.config).load_data(data_dir)
    if data.classes != run.classes:
        raise UserError(f"The data set {data.name} has other classes than when {run.folder} was trained.")
    data = replace(data, preprocessing=run.preprocessing)
    result = evaluate(load_method(run), data, split, device=pick_device(device))
    run.write_json(evaluation_file(split), result.to_json())
    return result


def evaluation_file(split: str) -> str:
    """The file in a run folder that holds what was measured on a split."""
    return f"eval-{split}.json"


def _fit(
    experiment: Experiment, method: Method, data: DataSet, run: Run, device: str, listener: Listener | None
) -> dict[str, Any]:
    return fit(
        method,
        data,
        experiment.training,
        seed=experiment.seed,
        device=device,
        run=run,
        listener=listener or Listener(),
    )
