"""The run folder: everything about one training, in files that people and programs can read."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hff.data import DataSet, Preprocessing
from hff.errors import UserError, quoted, shortened
from hff.evaluation import Calibration, EarlyExit
from hff.files import check, dump_yaml, parse_json, read_json, read_text, read_yaml
from hff.methods import Method
from hff.training import checkpoint
from hff.training.lock import FolderLock
from hff.training.plan import Position
from hff.training.schemas import (
    CALIBRATION,
    CHECKPOINT,
    CONFIG,
    COST,
    DATA,
    EARLY_EXIT,
    ENVIRONMENT,
    EVALUATION,
    FAILURE,
    METRICS,
    SCHEMAS,
    STATE,
    SUMMARY,
)

LARGEST_METRICS = 2**30
"""The bound on the size of the metrics in bytes; a line takes about 500."""

# Old and new names of settings, and of options of methods (old, new, methods), to open folders of 0.1.0.
# The methods are listed because a method of another package may have an option of the same name.
OLD_SETTINGS = {"schedule": "lr_schedule", "keep_gigabytes": "cache_gigabytes"}
OLD_OPTIONS = (
    (
        "schedule",
        "layer_order",
        ("ff", "hebb", "hff", "layer_collab", "mono_forward", "simcnn", "softhebb", "symba"),
    ),
    ("rest", "frozen", ("dfa", "ssdfa")),
    ("head", "output", ("fa", "dfa", "ssdfa", "dll")),
    ("centred", "centered", ("predictive_coding",)),
)


class Run:
    """One training in a folder: its config, data, environment, metrics, checkpoint and results."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.lock = FolderLock(self.folder)
        """Entered while the run is trained. A second process that enters it gets an error."""

    @staticmethod
    def exists(folder: Path | str) -> bool:
        """Whether the folder contains a run."""
        return (Path(folder) / CONFIG).is_file()

    @classmethod
    def create(cls, folder: Path | str, config: dict[str, Any], data: DataSet) -> "Run":
        """Starts a run in a folder, which must not contain one yet."""
        if cls.exists(folder):
            raise UserError(f"{folder} already contains a run; resume it, or choose another folder.")
        run = cls(folder)
        checkpoint.create_folder(run.folder)
        facts = {
            "name": data.name,
            "classes": data.classes,
            "preprocessing": data.preprocessing.to_json(),
            "brightness": data.brightness,
            "fingerprint": data.fingerprint,
        }
        run._write(DATA, facts)
        run._write(ENVIRONMENT, environment())
        # The config is written last, so that a folder with a config is a complete start of a run.
        run.save_config(config)
        return run

    @classmethod
    def open(cls, folder: Path | str) -> "Run":
        """An existing run."""
        if not isinstance(folder, str | Path):
            raise UserError(f"A run is given by the path of its folder, not by {folder!r}.")
        if not cls.exists(folder):
            raise UserError(f"{folder} is not a run folder: it has no {CONFIG}.")
        return cls(folder)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, with the current names of renamed settings."""
        path = self.folder / CONFIG
        content = read_yaml(path)
        if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
            raise UserError(f"{path} is damaged: it does not contain settings.")
        return with_current_names(content)

    def save_config(self, config: dict[str, Any]) -> None:
        """Replaces the configuration."""
        checkpoint.write_atomically(self.folder / CONFIG, dump_yaml(config))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self._read(DATA)["classes"])

    @property
    def preprocessing(self) -> Preprocessing:
        """The preprocessing of the inputs."""
        found = self._read(DATA)["preprocessing"]
        try:
            return Preprocessing.from_json(found)
        except UserError as error:
            raise UserError(f"{self.folder / DATA} is damaged: {error}") from None

    @property
    def brightness(self) -> tuple[float, float] | None:
        """The lowest and the highest brightness of the training images; None for tables and old runs."""
        found = self._read(DATA).get("brightness")
        return None if found is None else (found[0], found[1])

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the data; None for old runs."""
        found: str | None = self._read(DATA).get("fingerprint")
        return found

    @property
    def calibration(self) -> Calibration | None:
        """The scales that turn scores into probabilities; None before they are fitted."""
        found = self._find(CALIBRATION)
        return None if found is None else Calibration.from_json(found)

    def save_calibration(self, calibration: Calibration) -> None:
        """Saves the scales that turn scores into probabilities."""
        self._write(CALIBRATION, calibration.to_json())

    @property
    def early_exit(self) -> EarlyExit | None:
        """The thresholds of early exit; None before they are calibrated."""
        found = self._find(EARLY_EXIT)
        return None if found is None else EarlyExit.from_json(found)

    def save_early_exit(self, early_exit: EarlyExit) -> None:
        """Saves the thresholds of early exit."""
        self._write(EARLY_EXIT, early_exit.to_json())

    @property
    def finished(self) -> bool:
        """Whether the training is complete."""
        return (self.folder / SUMMARY).exists()

    def summary(self) -> dict[str, Any] | None:
        """The result of a finished run; None before that."""
        return self._find(SUMMARY)

    def metrics(self) -> list[dict[str, Any]]:
        """One record per epoch, in order. A line that a crash cut off is ignored."""
        records, lines, path = [], self._metric_lines(), self.folder / METRICS
        for number, line in enumerate(lines, 1):
            source = f"Line {number} of {path}"
            try:
                record = parse_json(line, source)
            except UserError:
                if number == len(lines):
                    break
                raise
            check(record, SCHEMAS[METRICS], source)
            records.append(record)
        return records

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Adds a record."""
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            # The checkpoint that follows counts this record, so it must be on the disk before.
            file.flush()
            os.fsync(file.fileno())

    def truncate_metrics(self, count: int) -> None:
        """Drops all records but the first `count`: the others are newer than the checkpoint."""
        lines = self._metric_lines()
        if len(lines) > count:
            checkpoint.write_atomically(self.folder / METRICS, "".join(line + "\n" for line in lines[:count]))
        readable = len(self.metrics())
        if readable < count:
            raise UserError(
                f"{self.folder / METRICS} is damaged: it has {readable} readable lines, but the checkpoint "
                f"was written after {count}; train again."
            )

    def finish(self, summary: dict[str, Any]) -> None:
        """Writes the summary, which marks the run as complete."""
        self._write(SUMMARY, summary)

    def reopen(self, config: dict[str, Any]) -> None:
        """Marks a finished run as not complete, with a new config. Results of the old one are removed."""
        self.save_config(config)
        for path in (
            self.folder / SUMMARY,
            self.folder / CALIBRATION,
            self.folder / EARLY_EXIT,
            *self.folder.glob(evaluation_file("*")),
        ):
            path.unlink(missing_ok=True)

    def evaluation(self, split: str) -> dict[str, Any] | None:
        """The saved evaluation on a split; None if there is none."""
        path = self.folder / evaluation_file(split)
        return read_json(path, EVALUATION) if path.exists() else None

    def save_evaluation(self, split: str, result: dict[str, Any]) -> None:
        """Saves the evaluation on a split."""
        self._write(evaluation_file(split), result)

    def cost(self) -> dict[str, Any]:
        """Measured time and memory by name; empty if nothing was measured."""
        return self._find(COST) or {}

    def add_cost(self, cost: Mapping[str, Any]) -> None:
        """Adds measured time or memory. The run need not have started."""
        checkpoint.create_folder(self.folder)
        self._write(COST, {**self.cost(), **cost})

    def failure(self) -> str | None:
        """Why the training failed; None if it did not."""
        found = self._find(FAILURE)
        return str(found["reason"]) if found else None

    def save_failure(self, reason: str) -> None:
        """Records that the training failed, in one sentence."""
        checkpoint.create_folder(self.folder)
        self._write(FAILURE, {"reason": reason})

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Replaces the checkpoint."""
        checkpoint.save(self.folder / CHECKPOINT, tensors, state)

    def keep(self, epoch: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Writes the weights of an epoch to a file of their own."""
        checkpoint.save(self.folder / kept_checkpoint(epoch), tensors, state)

    def kept_epochs(self) -> list[int]:
        """The epochs whose weights were kept, in order."""
        prefix, suffix = kept_checkpoint("*").split("*")
        names = [path.name for path in self.folder.glob(kept_checkpoint("*"))]
        numbers = [name.removeprefix(prefix).removesuffix(suffix) for name in names]
        return sorted(int(number) for number in numbers if number.isdecimal())

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and state of the checkpoint; None before the first one."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            return None
        tensors, state = checkpoint.load(path)
        return tensors, _checked(state, path)

    def position(self) -> Position:
        """The position of the training at the last checkpoint; the start before the first one."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            return Position()
        return Position(**_checked(checkpoint.read_state(path), path)["position"])

    def load_weights(
        self, method: Method, tensors: Mapping[str, Tensor] | None = None, *, epoch: int | None = None
    ) -> None:
        """Loads the weights of the last checkpoint into a method.

        Args:
            method: the method, built from the config of this run.
            tensors: the tensors that `load` returned. If None, the checkpoint is read.
            epoch: loads the weights that were kept after this epoch instead.
        """
        if epoch is not None and epoch not in self.kept_epochs():
            kept = ", ".join(map(str, self.kept_epochs())) or "none; train with keep_checkpoints"
            raise UserError(f"{self.folder} has no checkpoint of epoch {epoch} (kept: {kept}).")
        if tensors is None:
            tensors, _ = checkpoint.load(
                self.folder / (CHECKPOINT if epoch is None else kept_checkpoint(epoch))
            )
        weights = {
            name.removeprefix("method/"): t for name, t in tensors.items() if name.startswith("method/")
        }
        expected = method.state_dict()
        problems = [f"{name} is missing" for name in expected if name not in weights]
        problems += [f"{name} is not part of the method" for name in weights if name not in expected]
        problems += [
            f"{name} has the shape {list(weights[name].shape)}, not {list(tensor.shape)}"
            for name, tensor in expected.items()
            if name in weights and weights[name].shape != tensor.shape
        ]
        if problems:
            more = f", and {len(problems) - 1} more differences" if len(problems) > 1 else ""
            raise UserError(
                f"The checkpoint of {self.folder} does not fit its config: {shortened(problems[0])}{more}; "
                f"restore the {CONFIG} that it was trained with."
            )
        method.load_state_dict(weights)

    def _metric_lines(self) -> list[str]:
        path = self.folder / METRICS
        # Only a line feed ends a line: JSON text may contain other separators.
        return read_text(path, LARGEST_METRICS).removesuffix("\n").split("\n") if _has_content(path) else []

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_json(self.folder / name, content)

    def _read(self, name: str) -> dict[str, Any]:
        return read_json(self.folder / name, SCHEMAS[name])

    def _find(self, name: str) -> dict[str, Any] | None:
        return self._read(name) if (self.folder / name).exists() else None


def evaluation_file(split: str) -> str:
    """The name of the file with the evaluation on a split."""
    return f"eval-{split}.json"


def kept_checkpoint(epoch: int | str) -> str:
    """The name of the file with the weights of an epoch."""
    return f"checkpoint-epoch-{epoch}.safetensors"


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file atomically."""
    checkpoint.write_atomically(path, json.dumps(content, indent=2) + "\n")


def _checked(state: dict[str, Any], path: Path) -> dict[str, Any]:
    """The state of a checkpoint, with a position that has the fields that this version knows."""
    check(state, STATE, f"The state in the checkpoint {path}")
    unknown_fields = set(state["position"]) - {field.name for field in fields(Position)}
    if unknown_fields:
        raise UserError(
            f"The state in the checkpoint {path} is damaged: its position has the unknown field "
            f"{quoted(min(unknown_fields))}."
        )
    return state


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def with_current_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the current names of settings and method options that have been renamed."""
    current = _renamed(config, OLD_SETTINGS)
    method = current.get("method")
    if isinstance(method, dict):
        renamed = {old: new for old, new, names in OLD_OPTIONS if method.get("name") in names}
        current["method"] = _renamed(method, renamed)
    return current


def _renamed(mapping: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in mapping.items()}


def environment() -> dict[str, Any]:
    """The command, versions and hardware of a measurement."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        # `python -m hff` is the same as `hff`.
        "command": shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "hff"), *sys.argv[1:]]),
        "hff": version("hff"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def processor() -> str:
    """The name of the processor as the system reports it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
