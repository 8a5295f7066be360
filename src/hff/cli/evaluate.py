"""`hff eval`: what a run has learned, layer by layer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.output import number, percent, write, write_json, write_table
from hff.cli.parsing import Parser, configuring

if TYPE_CHECKING:
    from hff.evaluation import Evaluation

LARGEST_MATRIX = 20
"""With more classes the confusion matrix is no longer readable, so the worst pairs are shown."""
LONGEST_COLUMN = 4
"""Longer class names would make the matrix too wide; their numbers head the columns."""


def main(argv: Sequence[str]) -> None:
    parser = Parser("eval", "Measure a run: accuracy and information of every layer, and what is confused.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, or one of several seeds")
    splits = ("test", "validation", "train")
    parser.add_argument("--split", choices=splits, default="test", help="what to measure on (test)")
    parser.add_machine_flags()
    given = parser.read(argv)
    if given is None:
        return
    from hff.experiment import evaluate_run, evaluation_file
    from hff.run_group import is_group, runs
    from hff.training import Run, pick_device
    from hff.training.checkpoint import write_atomically

    with configuring():
        pick_device(given.device)
        group = runs(given.run) if is_group(given.run) else None
        found = [Run.open(given.run)] if group is None else list(group.values())
    machine: dict[str, Any] = {"device": given.device, "data_dir": given.data_dir}
    results = [evaluate_run(run, given.split, **machine) for run in found]
    if group is None:
        answer = results[0].to_json()
    else:
        answer = combine(dict(zip(group, results, strict=True)))
        write_atomically(given.run / evaluation_file(given.split), json.dumps(answer, indent=2) + "\n")
    if given.json:
        write_json({"run": str(given.run), **answer})
    else:
        _show(answer)
        if group is None:
            show_confusions(results[0])


def combine(results: "dict[int, Evaluation]") -> dict[str, Any]:
    """Mean and spread over seeds; the confusions stay with the runs."""
    from hff.errors import UserError
    from hff.run_group import spread

    if not results:
        raise UserError("None of the seeds has been trained yet.")
    kept = [{k: v for k, v in each.to_json().items() if k != "confusion"} for each in results.values()]
    return {"seeds": list(results), **spread(kept)}


def _show(answer: dict[str, Any]) -> None:
    rows = [
        (layer["layer"], percent(layer["accuracy"]), percent(layer.get("top5")), number(layer["bits"]))
        for layer in answer["layers"]
    ]
    write_table(("layer", "accuracy", "top-5", "bits"), rows)
    top5 = f", top-5 {percent(answer['top5'])}" if answer.get("top5") else ""
    write(f"\n{answer['split']}: {percent(answer['accuracy'])} of {answer['samples']} samples{top5}")
    if "seeds" in answer:
        write(f"mean ± standard deviation over the seeds {', '.join(map(str, answer['seeds']))}")
    scale = f"fitted on the {answer['scale_from']} split"
    write(f"bits: what a layer tells about the class at least; the scale of its scores is {scale}")


def show_confusions(result: "Evaluation") -> None:
    """The matrix, rows true classes and columns predicted ones; of many classes the worst pairs only."""
    write()
    if len(result.classes) > LARGEST_MATRIX:
        write_table(("true", "predicted", "samples"), result.most_confused())
        return
    short = result.classes
    if max(map(len, short)) > LONGEST_COLUMN:
        short = tuple(map(str, range(len(short))))
    names = [
        name if name == key else f"{key} {name}" for key, name in zip(short, result.classes, strict=True)
    ]
    rows = [
        (name, *(count or "." for count in row)) for name, row in zip(names, result.confusion, strict=True)
    ]
    write_table(("true \\ predicted", *short), rows)
