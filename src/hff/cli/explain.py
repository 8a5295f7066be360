"""`hff explain`: activation maps of every layer, for images or for telling images of the data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.output import write, write_json, write_table
from hff.cli.parsing import Parser, UsageError, configuring

if TYPE_CHECKING:
    from hff.explain import ActivationMaps

KINDS = ("right", "late", "wrong", "hardest")
WAYS = ("auto", "exact", "grad_cam", "occlusion")
SPLITS = ("test", "validation", "train", "all")


def main(argv: Sequence[str]) -> None:
    parser = Parser("explain", "Show which parts of an image speak for a class, in every layer.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    text = "image files, folders of them, or .npz files with an array x"
    parser.add_argument("inputs", type=Path, nargs="*", metavar="IMAGE|FOLDER|FILE.npz", help=text)
    text = (
        "choose images of the data instead: right in all layers, wrong in a lower layer and corrected late, "
        "wrong, or the hardest ones"
    )
    parser.add_argument("--kind", choices=KINDS, help=text)
    parser.add_argument("--count", type=int, default=4, metavar="N", help="number of images of that kind (4)")
    parser.add_argument("--split", choices=SPLITS, default="test", help="the split to choose from (test)")
    text = (
        "the class to explain: a name, or layer (the class that each layer predicts), prediction (that of "
        "the run) or label (the true class) (layer)"
    )
    parser.add_argument("--class", dest="of", default="layer", metavar="NAME", help=text)
    text = "exact for hff, grad_cam for networks with convolutions, or occlusion (auto: the first that works)"
    parser.add_argument("--how", choices=WAYS, default="auto", help=text)
    parser.add_argument("--invert", action="store_true", help="swap dark and bright in the images")
    text = "a .png or .svg figure, or an .npz file of arrays (maps.png in the run folder)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    parser.add_machine_flags()
    given = parser.read(argv)
    if given is None:
        return
    if bool(given.inputs) == bool(given.kind):
        raise UsageError("Give either images or --kind right, late, wrong or hardest.")
    if given.count < 1:
        raise UsageError(f"--count must be at least 1, not {given.count}.")
    if given.out and given.out.suffix.lower() not in (".png", ".svg", ".npz"):
        raise UsageError(f"--out must be a .png, .svg or .npz file, not {given.out}.")
    from hff.data.inputs import input_files
    from hff.explain import activation_maps
    from hff.prediction import open_run
    from hff.training import pick_device

    with configuring():
        pick_device(given.device)
        run = open_run(given.run)
        files = input_files(given.inputs) if given.inputs else None
    found = activation_maps(
        run,
        files,
        of=given.of,
        how=given.how,
        kind=given.kind,
        count=given.count,
        split=given.split,
        data_dir=given.data_dir,
        device=given.device,
        invert=given.invert,
    )
    out = given.out or run.folder / ("maps.png" if given.kind is None else f"maps-{given.kind}.png")
    if given.out or not given.json:
        _save(found, out)
    if given.json:
        write_json({"run": str(given.run), "how": found.how, "images": as_json(found)})
        return
    _show(found)
    write(f"\n{_sentence(found)}\nThe maps are in {out}")


def _save(found: "ActivationMaps", out: Path) -> None:
    if out.suffix.lower() == ".npz":
        import numpy as np

        np.savez(out, **{name: tensor.numpy() for name, tensor in found.arrays().items()})  # type: ignore[arg-type]
        return
    from hff.plotting import save_figure

    save_figure(found.figure(), out)


def _sentence(found: "ActivationMaps") -> str:
    return {
        "exact": "The maps are exact: the contributions of all positions add up to the score.",
        "grad_cam": "The maps are Grad-CAM: channels weighted by the mean gradient of the score.",
        "occlusion": "The maps show how much the score falls when a patch of the image is covered.",
    }[found.how]


def as_json(found: "ActivationMaps") -> list[dict[str, Any]]:
    """One object for each image, with the map of every layer as rows of numbers."""
    return [
        {
            "image": found.titles[i] if found.titles else str(i),
            "label": None if found.labels is None else found.names[int(found.labels[i])],
            "class": found.names[int(found.predicted[i])],
            "layers": [
                {
                    "layer": layer.layer,
                    "class": found.names[int(layer.predicted[i])],
                    "probability": (
                        None if layer.probabilities is None else round(float(layer.probabilities[i]), 6)
                    ),
                    "explained": found.names[int(layer.classes[i])],
                    "score": round(float(layer.scores[i]), 6),
                    "map": [[round(value, 6) for value in row] for row in layer.positions[i].tolist()],
                }
                for layer in found.layers
            ],
        }
        for i in range(len(found))
    ]


def _show(found: "ActivationMaps") -> None:
    layers = [f"layer {each.layer}" for each in found.layers]
    truth = [] if found.labels is None else ["true class"]
    rows = []
    for i in range(len(found)):
        name = found.titles[i] if found.titles else str(i)
        own = [] if found.labels is None else [found.names[int(found.labels[i])]]
        opinions = [
            found.names[int(each.predicted[i])]
            + ("" if each.probabilities is None else f" {100 * float(each.probabilities[i]):.0f} %")
            for each in found.layers
        ]
        rows.append([name, *own, found.names[int(found.predicted[i])], *opinions])
    write_table(["image", *truth, "class", *layers], rows, optional=layers, paths=["image"])
