"""`hff predict`: the class of images, according to the run and to each of its layers."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.output import write, write_json, write_table
from hff.cli.parsing import Parser, configuring

if TYPE_CHECKING:
    from hff.prediction import Prediction


def main(argv: Sequence[str]) -> None:
    parser = Parser("predict", "Classify images, and show the prediction of each layer.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE|FOLDER", help="image files, or folders of them"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="write the predictions to a CSV file")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps (auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.read(argv)
    if given is None:
        return
    from hff.prediction import image_files, open_run, predict
    from hff.training import pick_device

    with configuring():
        pick_device(given.device)
        run = open_run(given.run)
        files = image_files(given.images)
    predictions = [as_json(each) for each in predict(run, files, device=given.device)]
    if given.out:
        given.out.write_text(_csv(predictions), encoding="utf-8")
    if given.json:
        write_json({"run": str(given.run), "predictions": predictions})
    elif given.out:
        write(f"{len(predictions)} predictions are in {given.out}")
    else:
        _show(predictions)


def as_json(prediction: "Prediction") -> dict[str, Any]:
    """A prediction of a file with the names that JSON and CSV use."""
    return {
        "file": str(prediction.file),
        "class": prediction.label,
        "score": round(prediction.score, 6),
        "layers": [
            {"layer": each.layer, "class": each.label, "score": round(each.score, 6)}
            for each in prediction.layers
        ],
    }


def _csv(predictions: Sequence[dict[str, Any]]) -> str:
    layers = [each["layer"] for each in predictions[0]["layers"]]
    header = ["file", "class", "score", *(f"layer {n}{part}" for n in layers for part in ("", " score"))]
    rows = [
        [
            p["file"],
            p["class"],
            p["score"],
            *(each[part] for each in p["layers"] for part in ("class", "score")),
        ]
        for p in predictions
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _show(predictions: Sequence[dict[str, Any]]) -> None:
    layers = [f"layer {each['layer']}" for each in predictions[0]["layers"]]
    rows = [
        [p["file"], p["class"], *(f"{each['class']} ({each['score']:.2f})" for each in p["layers"])]
        for p in predictions
    ]
    # The last layers usually predict best, so the first ones are left out.
    write_table(["file", "class", *layers], rows, optional=layers[:-1], paths=["file"])
