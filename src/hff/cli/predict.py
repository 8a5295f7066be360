"""`hff predict`: the class of images, with the opinion of each layer."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.output import write, write_json, write_table
from hff.cli.parsing import Parser, configuring
from hff.errors import UserError

if TYPE_CHECKING:
    from hff.training import Run

BATCH = 64


def main(argv: Sequence[str]) -> None:
    parser = Parser("predict", "Classify images: the final answer, and the opinion of each layer.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE|FOLDER", help="files, or folders of them"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="write the answer into a CSV file")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps (auto)")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    given = parser.read(argv)
    if given is None:
        return
    from hff.run_group import is_group, runs
    from hff.training import Run, pick_device

    with configuring():
        device = pick_device(given.device)
        if is_group(given.run):
            one = next((run.folder for run in runs(given.run).values()), given.run / "seed-0")
            raise UserError(f"{given.run} holds runs of several seeds; choose one of them, such as {one}.")
        run = Run.open(given.run)
        files = image_files(given.images)
    predictions = predict(run, files, str(device))
    if given.out:
        given.out.write_text(_csv(predictions), encoding="utf-8")
    if given.json:
        write_json({"run": str(given.run), "predictions": predictions})
    elif given.out:
        write(f"{len(predictions)} predictions are in {given.out}")
    else:
        _show(predictions)


def image_files(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and in place of each folder all images in it, in order."""
    from hff.data.readers.images import SUFFIXES

    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"There is no file or folder {path}.")
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
            if not inside:
                raise UserError(f"The folder {path} holds no images.")
            files += inside
        else:
            files.append(path)
    return files


def predict(run: "Run", files: Sequence[Path], device: str) -> list[dict[str, Any]]:
    """For each file the final class and score, and those of each layer."""
    import torch

    from hff.experiment import load_method

    method = load_method(run).to(device)
    preprocessing, classes = run.preprocessing, run.classes
    predictions: list[dict[str, Any]] = []
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        x = torch.stack([preprocessing.read_image(file) for file in batch]).to(device)
        with torch.no_grad():
            scores = dict(method.layer_scores(x))
        final = _opinions(method.combine_scores(scores), classes)
        layers = {layer: _opinions(each, classes) for layer, each in scores.items()}
        for i, file in enumerate(batch):
            opinions = [{"layer": layer, **each[i]} for layer, each in layers.items()]
            predictions.append({"file": str(file), **final[i], "layers": opinions})
    return predictions


def _opinions(scores: Any, classes: Sequence[str]) -> list[dict[str, Any]]:
    best = scores.max(1)
    found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [{"class": classes[index], "score": round(score, 6)} for score, index in found]


def _flat(predictions: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    layers = [opinion["layer"] for opinion in predictions[0]["layers"]]
    header = ["file", "class", "score", *(f"layer {n}{part}" for n in layers for part in ("", " score"))]
    rows = [
        [p["file"], p["class"], p["score"], *(o[part] for o in p["layers"] for part in ("class", "score"))]
        for p in predictions
    ]
    return header, rows


def _csv(predictions: Sequence[dict[str, Any]]) -> str:
    header, rows = _flat(predictions)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _show(predictions: Sequence[dict[str, Any]]) -> None:
    layers = [f"layer {opinion['layer']}" for opinion in predictions[0]["layers"]]
    rows = [
        [p["file"], p["class"], *(f"{o['class']} ({o['score']:.2f})" for o in p["layers"])]
        for p in predictions
    ]
    write_table(["file", "class", *layers], rows)
