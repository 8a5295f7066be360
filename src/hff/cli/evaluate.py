"""`hff eval`: what a run has learned, layer by layer."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.output import write, write_json, write_table
from hff.cli.parsing import Parser, configuring

if TYPE_CHECKING:
    from hff.evaluation import Evaluation
    from hff.training import Run

LARGEST_MATRIX = 20
"""With more classes the confusion matrix is no longer readable, so the worst pairs are shown."""


def main(argv: Sequence[str]) -> None:
    parser = Parser("eval", "Measure a run: accuracy, top-5 and information of every layer, and the confusions.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, or one with a run for each seed")
    parser.add_argument("--split", choices=("test", "validation", "train"), default="test", help="what to measure on")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    parser.add_argument("--data-dir", type=Path, help="folder of data files (else $HFF_DATA, else the user's cache)")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    given = parser.read(argv)
    if given is None:
        return
    from hff import seeds
    from hff.training import Run, pick_device

    with configuring():
        pick_device(given.device)
        runs = seeds.runs(given.run) if seeds.is_group(given.run) else None
        single = Run.open(given.run) if runs is None else None
    if single is not None:
        result = measure(single, given.split, given.device, given.data_dir)
        if given.json:
            write_json({"run": str(given.run), **result.to_json()})
        else:
            _show(result)
        return
    results = {
        seed: measure(run, given.split, given.device, given.data_dir).to_json() for seed, run in (runs or {}).items()
    }
    combined = combine(results)
    _save(given.run, given.split, combined)
    if given.json:
        write_json({"run": str(given.run), **combined})
    else:
        _show_combined(combined)


def measure(run: "Run", split: Any, device: str, data_dir: Path | None) -> "Evaluation":
    """Evaluates a run on a split and leaves the answer in its folder."""
    from hff.errors import UserError
    from hff.evaluation import evaluate
    from hff.experiment import Experiment, load_data, restore
    from hff.training import pick_device

    data = load_data(Experiment.from_mapping(run.config), data_dir)
    if data.classes != run.classes:
        raise UserError(f"The data set {data.name} has other classes than when {run.folder} was trained.")
    data = replace(data, preprocessing=run.preprocessing)
    result = evaluate(restore(run), data, split, device=pick_device(device))
    _save(run.folder, split, result.to_json())
    return result


def combine(results: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Mean and spread over seeds of what `measure` gives for each; the confusions stay with the runs."""
    from hff.errors import UserError
    from hff.seeds import spread

    if not results:
        raise UserError("None of the seeds has been trained yet.")
    kept = [{k: v for k, v in result.items() if k != "confusion"} for result in results.values()]
    return {"seeds": list(results), **spread(kept)}


def _save(folder: Path, split: str, content: dict[str, Any]) -> None:
    (folder / f"eval-{split}.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def _show(result: "Evaluation") -> None:
    write_table(
        ("layer", "accuracy", "top-5", "bits"),
        [(str(r.layer), _percent(r.accuracy), _percent(r.top5), f"{r.bits:.2f}") for r in result.layers],
    )
    top5 = f", top-5 {_percent(result.top5)}" if result.top5 is not None else ""
    write(f"\n{result.split}: {_percent(result.accuracy)} of {result.samples} samples{top5}")
    scaled = "fitted on the validation split" if result.scale_from == "validation" else "1"
    write(f"bits: what a layer tells about the class at least; scale of the scores {scaled}\n")
    if len(result.classes) <= LARGEST_MATRIX:
        _show_matrix(result)
    else:
        write_table(("true", "predicted", "samples"), result.most_confused())


def _show_matrix(result: "Evaluation") -> None:
    """Rows are true classes, columns predicted ones."""
    short = [str(i) for i in range(len(result.classes))]
    rows = [
        (number, name, *(count or "." for count in row))
        for number, name, row in zip(short, result.classes, result.confusion, strict=True)
    ]
    write_table(("", "true \\ predicted", *short), rows)


def _show_combined(combined: dict[str, Any]) -> None:
    write_table(
        ("layer", "accuracy", "top-5", "bits"),
        [
            (str(r["layer"]), _mean(r["accuracy"], 100), _mean(r.get("top5"), 100), _mean(r["bits"]))
            for r in combined["layers"]
        ],
    )
    top5 = f", top-5 {_mean(combined['top5'], 100)} %" if combined.get("top5") else ""
    write(f"\n{combined['split']}: {_mean(combined['accuracy'], 100)} % of {combined['samples']} samples{top5}")
    write(f"mean ± standard deviation over the seeds {', '.join(map(str, combined['seeds']))}")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def _mean(value: dict[str, float | None] | None, factor: float = 1.0) -> str:
    if value is None or value["mean"] is None:
        return ""
    spread = f" ± {factor * value['std']:.2f}" if value["std"] is not None else ""
    return f"{factor * value['mean']:.2f}{spread}"
