"""One experiment from several seeds: a folder with a run for each of them, and their mean and spread."""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hff.errors import UserError
from hff.experiment import Experiment, resume, train
from hff.training import Listener, Run

SEEDS, SUMMARY = "seeds.json", "summary.json"


def is_group(folder: Path) -> bool:
    """Whether the folder holds runs of several seeds."""
    return (folder / SEEDS).is_file()


def create_group(folder: Path, experiment: Experiment, seeds: Sequence[int]) -> None:
    """Writes down which seeds of which experiment the folder will hold."""
    if len(set(seeds)) < len(seeds) or not seeds:
        raise UserError(f"Give each seed once, and at least one, not {list(seeds)}.")
    if (folder / "config.yaml").exists() or (is_group(folder) and runs(folder)):
        raise UserError(
            f"{folder} holds runs already: resume them with --resume {folder}, or choose another --out."
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / SEEDS, {"seeds": list(seeds), "config": experiment.to_mapping()})


def runs(folder: Path) -> dict[int, Run]:
    """The run of each seed, as far as they were begun."""
    folders = {seed: folder / f"seed-{seed}" for seed in _read(folder)["seeds"]}
    return {seed: Run(path) for seed, path in folders.items() if (path / "config.yaml").exists()}


def train_group(
    folder: Path,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    listener: Callable[[int], Listener] = lambda seed: Listener(),
) -> dict[str, Any]:
    """Trains every seed that is not finished yet, and writes mean and spread of all.

    Args:
        folder: made by `create_group`.
        data_dir: where the files of data sets are.
        device: what to train on.
        listener: gives the listener for the run of a seed.
    """
    plan = _read(folder)
    experiment = Experiment.from_mapping(plan["config"])
    summaries = []
    for seed in plan["seeds"]:
        begun = runs(folder).get(seed)
        if begun:
            summary = resume(begun, data_dir=data_dir, device=device, listener=listener(seed))
        else:
            out = folder / f"seed-{seed}"
            summary = train(
                experiment.with_seed(seed), out, data_dir=data_dir, device=device, listener=listener(seed)
            )
        summaries.append(summary)
    combined = {"seeds": plan["seeds"], **spread([{**summary, "seed": None} for summary in summaries])}
    _write(folder / SUMMARY, combined)
    return combined


def spread(results: Sequence[Any]) -> Any:
    """Several results as one: numbers become {mean, std}, what else is equal everywhere stays, the rest goes.

    The standard deviation is the sample's (n - 1), and None where there is one result only.
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


def _read(folder: Path) -> dict[str, Any]:
    try:
        plan: dict[str, Any] = json.loads((folder / SEEDS).read_text(encoding="utf-8"))
        return plan
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / SEEDS} cannot be read ({error}).") from None


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
