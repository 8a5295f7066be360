"""The run folder: all that is known about one training, in files that people and programs can read."""

import json
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from hff.data import DataSet, Preprocessing
from hff.errors import UserError
from hff.methods import Method
from hff.training import checkpoint
from hff.training.plan import Position

CONFIG, METRICS, DATA, ENVIRONMENT, SUMMARY = (
    "config.yaml",
    "metrics.jsonl",
    "data.json",
    "environment.json",
    "summary.json",
)
CHECKPOINT = "checkpoint.safetensors"


class Run:
    """One training in a folder: its config, data facts, environment, metrics, checkpoint and summary."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: Path | str, config: dict[str, Any], data: DataSet) -> "Run":
        """Starts a run in an empty or new folder; a folder that holds a run already is left alone."""
        folder = Path(folder)
        if (folder / CONFIG).exists():
            raise UserError(
                f"{folder} holds a run already: resume it with --resume {folder}, or choose another --out."
            )
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder)
        facts = {"name": data.name, "classes": data.classes, "preprocessing": data.preprocessing.to_json()}
        run.write_json(DATA, facts)
        run.write_json(ENVIRONMENT, environment())
        # The config comes last: a folder that has one is a complete start of a run.
        checkpoint.write_atomically(folder / CONFIG, yaml.safe_dump(config, sort_keys=False))
        return run

    @classmethod
    def open(cls, folder: Path | str) -> "Run":
        """An existing run."""
        folder = Path(folder)
        if not (folder / CONFIG).is_file():
            raise UserError(f"{folder} is no run folder: it has no {CONFIG}.")
        return cls(folder)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        content = yaml.safe_load((self.folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise UserError(f"{self.folder / CONFIG} is damaged: it holds no configuration.")
        return content

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.read_json(DATA)["classes"])

    @property
    def preprocessing(self) -> Preprocessing:
        """How inputs become what the network gets."""
        return Preprocessing.from_json(self.read_json(DATA)["preprocessing"])

    @property
    def finished(self) -> bool:
        """Whether the training is complete."""
        return (self.folder / SUMMARY).exists()

    def summary(self) -> dict[str, Any] | None:
        """The result of a finished run."""
        return self.read_json(SUMMARY) if self.finished else None

    def metrics(self) -> list[dict[str, Any]]:
        """One record an epoch, in order; a line that a crash cut off is not one."""
        records = []
        for line in self._metric_lines():
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def append_metrics(self, record: dict[str, Any]) -> None:
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def truncate_metrics(self, count: int) -> None:
        """Drops the records after the first `count`, which are younger than the checkpoint."""
        lines = self._metric_lines()
        if len(lines) > count:
            checkpoint.write_atomically(self.folder / METRICS, "".join(line + "\n" for line in lines[:count]))

    def finish(self, summary: dict[str, Any]) -> None:
        """Writes the summary: from now on the run is complete."""
        self.write_json(SUMMARY, summary)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Puts a document into the folder, whole or not at all."""
        checkpoint.write_atomically(self.folder / name, json.dumps(content, indent=2) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """A document of the folder."""
        path = self.folder / name
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return content
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}).") from None

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Replaces the checkpoint."""
        checkpoint.save(self.folder / CHECKPOINT, tensors, state)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and state of the checkpoint, None before the first one."""
        path = self.folder / CHECKPOINT
        return checkpoint.load(path) if path.exists() else None

    def position(self) -> Position:
        """How far the newest checkpoint is; the start before the first one."""
        loaded = self.load()
        return Position(**loaded[1]["position"]) if loaded else Position()

    def load_weights(self, method: Method) -> None:
        """Puts the newest weights into a method."""
        tensors, _ = checkpoint.load(self.folder / CHECKPOINT)
        weights = {
            name.removeprefix("method/"): t for name, t in tensors.items() if name.startswith("method/")
        }
        try:
            method.load_state_dict(weights)
        except RuntimeError as error:
            raise UserError(f"The checkpoint of {self.folder} does not fit its config ({error}).") from None

    def _metric_lines(self) -> list[str]:
        path = self.folder / METRICS
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def environment() -> dict[str, Any]:
    """How and where a measurement was made: command, versions and hardware."""
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
    """The processor's name, as the system gives it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
