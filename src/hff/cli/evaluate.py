"""`hff eval`: accuracy and information of every layer of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.early_exit import add_exit_flags, check_exit_flags, show_early_exit, without_ambiguity
from hff.cli.output import write, write_json, write_table
from hff.cli.parsing import Parser, configuring
from hff.formatting import number, percent

if TYPE_CHECKING:
    from hff.evaluation import Evaluation

LARGEST_MATRIX = 20
"""With more classes, the confusion matrix is not readable, so the most confused pairs are shown."""
WORST = 10
"""With more classes than fit a matrix, this many are shown with precision, recall and F1."""
SCORES = ("precision", "recall", "f1")
LONGEST_COLUMN = 4
"""Longer class names would make the matrix too wide, so the columns are numbered."""


def main(argv: Sequence[str]) -> None:
    parser = Parser("eval", "Evaluate a run: accuracy and information of every layer, and the confusions.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, also one with several seeds")
    splits = ("test", "validation", "train", "all")
    text = "the split to evaluate on (test; all for new data)"
    parser.add_argument("--split", choices=splits, help=text)
    text = "new labeled data, or where the data of the run is now: a folder of images or an .npz file"
    parser.add_argument("--data.path", dest="path", type=Path, metavar="PATH", help=text)
    add_exit_flags(parser)
    parser.add_machine_flags()
    given = parser.read(without_ambiguity(argv))
    if given is None:
        return
    check_exit_flags(given)
    from hff.run_group import RunGroup
    from hff.trained import evaluate_run
    from hff.training import Run, pick_device

    with configuring():
        pick_device(given.device)
        group = RunGroup.exists(given.run)
        if not group:
            Run.open(given.run)
    machine: dict[str, Any] = {"device": given.device, "data_dir": given.data_dir, "path": given.path}
    if given.early_exit is not None:
        show_early_exit(given, machine)
        return
    if group:
        result, answer = None, RunGroup(given.run).evaluate(given.split, **machine)
    else:
        result = evaluate_run(Run(given.run), given.split, **machine)
        answer = result.to_json()
    if given.json:
        write_json({"run": str(given.run), **answer})
        return
    _show(answer)
    show_classes(answer["per_class"])
    if result:
        show_confusions(result)


def _show(answer: dict[str, Any]) -> None:
    rows = [
        (layer["layer"], percent(layer["accuracy"]), percent(layer.get("top5")), number(layer["bits"]))
        for layer in answer["layers"]
    ]
    write_table(("layer", "accuracy", "top-5", "bits"), rows)
    top5 = f", top-5 {percent(answer['top5'])}" if answer.get("top5") else ""
    name = "all examples" if answer["split"] == "all" else answer["split"]
    write(f"\n{name}: {percent(answer['accuracy'])} of {answer['samples']} samples{top5}")
    write(f"balanced accuracy (mean recall of the classes): {percent(answer['balanced_accuracy'])}")
    if "seeds" in answer:
        write(f"mean ± standard deviation over the seeds {', '.join(map(str, answer['seeds']))}")
    split = answer["scale_from"]
    write("bits: a lower bound on the information about the class")
    write(f"      (the scores are scaled on the {split} split)")
    if any(_mean(layer["bits"]) < 0 for layer in answer["layers"]):
        write("      (negative: the scores predict the class worse than its frequency does)")


def _mean(value: Any) -> float:
    mean: float = value["mean"] if isinstance(value, dict) else value
    return mean


def show_classes(classes: Sequence[dict[str, Any]]) -> None:
    """Shows precision, recall and F1 of each class; of many classes, only those with the lowest F1."""
    # New data may lack some classes.
    shown = [each for each in classes if _mean(each.get("samples", 1)) or _mean(each["precision"])]
    if len(classes) > LARGEST_MATRIX:
        shown = sorted(classes, key=lambda each: _mean(each["f1"]))[:WORST]
        write(f"\nThe {WORST} of {len(classes)} classes with the lowest F1 (--json shows all):")
    else:
        write()
    rows = [
        (each["name"], number(each.get("samples"), digits=0), *(percent(each[key]) for key in SCORES))
        for each in shown
    ]
    write_table(("class", "samples", "precision", "recall", "F1"), rows)


def show_confusions(result: "Evaluation") -> None:
    """Shows the confusion matrix (rows: true classes, columns: predicted), or the most confused pairs."""
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
