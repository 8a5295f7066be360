"""`hff predict`: the class of images or rows, according to the run and to each of its layers."""

import csv
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.output import output_width, write, write_json, write_table
from hff.cli.parsing import Parser, configuring

if TYPE_CHECKING:
    from hff.prediction import Prediction

SHOWN_NOTES = 5
"""The largest number of inputs whose notes are shown one by one."""


def main(argv: Sequence[str]) -> None:
    parser = Parser("predict", "Classify images or rows, with probabilities, and the opinion of each layer.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "inputs",
        type=Path,
        nargs="+",
        metavar="IMAGE|FOLDER|FILE.npz",
        help="image files, folders of them, or .npz files with an array x",
    )
    parser.add_argument(
        "--top-k", type=int, default=1, metavar="N", help="show the N most likely classes (1)"
    )
    parser.add_argument("--invert", action="store_true", help="swap dark and bright in the images")
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="write the predictions to a CSV file")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps (auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.read(argv)
    if given is None:
        return
    from hff.data.inputs import input_files
    from hff.prediction import open_run, predict
    from hff.training import pick_device

    with configuring():
        pick_device(given.device)
        run = open_run(given.run)
        files = input_files(given.inputs)
    found = predict(run, files, device=given.device, top_k=given.top_k, invert=given.invert)
    predictions = [as_json(each) for each in found]
    if given.out:
        given.out.write_text(_csv(predictions), encoding="utf-8")
    if given.json:
        write_json({"run": str(given.run), "predictions": predictions})
        return
    if given.out:
        write(f"{len(predictions)} predictions are in {given.out}")
    else:
        _show(predictions)
    _show_notes(predictions)


def as_json(prediction: "Prediction") -> dict[str, Any]:
    """A prediction of a file with the names that JSON and CSV use."""
    return {
        "file": str(prediction.file),
        "row": prediction.row,
        "class": prediction.label,
        "probability": _rounded(prediction.probability),
        "score": _rounded(prediction.score),
        "top": [{"class": each.label, "probability": _rounded(each.probability)} for each in prediction.top],
        "layers": [
            {
                "layer": each.layer,
                "class": each.label,
                "probability": _rounded(each.probability),
                "score": _rounded(each.score),
            }
            for each in prediction.layers
        ],
        "note": prediction.note,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _csv(predictions: Sequence[dict[str, Any]]) -> str:
    first = predictions[0]
    columns: dict[str, Any] = {"file": lambda p: p["file"]}
    if first["row"] is not None:
        columns["row"] = lambda p: p["row"]
    for key in ("class", "probability", "score"):
        columns[key] = lambda p, key=key: p[key]
    for rank in range(1, len(first["top"])):
        for key in ("class", "probability"):
            columns[f"{key} {rank + 1}"] = lambda p, key=key, rank=rank: p["top"][rank][key]
    for i, layer in enumerate(first["layers"]):
        for key in ("class", "probability", "score"):
            columns[f"layer {layer['layer']} {key}"] = lambda p, key=key, i=i: p["layers"][i][key]
    columns["note"] = lambda p: p["note"]
    text = io.StringIO()
    rows = [[value(p) for value in columns.values()] for p in predictions]
    csv.writer(text, lineterminator="\n").writerows([list(columns), *rows])
    return text.getvalue()


def _show(predictions: Sequence[dict[str, Any]]) -> None:
    layers = [f"layer {each['layer']}" for each in predictions[0]["layers"]]
    others = ["next"] if len(predictions[0]["top"]) > 1 else []
    rows = [
        [
            _origin(p),
            p["class"],
            _share(p["probability"]),
            *(", ".join(map(_answer, p["top"][1:])) for _ in others),
            *map(_answer, p["layers"]),
        ]
        for p in predictions
    ]
    header = ["file", "class", "probability", *others, *layers]
    # The last layers usually predict best, so the first ones are left out.
    write_table(header, rows, optional=layers, paths=["file"])


def _show_notes(predictions: Sequence[dict[str, Any]]) -> None:
    noted = [p for p in predictions if p["note"]]
    if noted:
        write()
    for p in noted[:SHOWN_NOTES]:
        write(textwrap.fill(f"{_origin(p)} is {p['note']}.", output_width(), subsequent_indent="  "))
    if len(noted) > SHOWN_NOTES:
        write(f"{len(noted) - SHOWN_NOTES} more inputs have such a note; --json and --out list them.")


def _origin(prediction: dict[str, Any]) -> str:
    row = prediction["row"]
    return prediction["file"] if row is None else f"{prediction['file']}, row {row}"


def _answer(each: dict[str, Any]) -> str:
    """A class with its probability, or with its score if the run is not calibrated."""
    share = each["probability"]
    return f"{each['class']} ({each['score']:.2f})" if share is None else f"{each['class']} {_share(share)}"


def _share(probability: float | None) -> str:
    return "" if probability is None else f"{100 * probability:.1f} %"
