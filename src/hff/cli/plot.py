"""`hff plot`: one figure of a report alone."""

from collections.abc import Sequence
from pathlib import Path

from hff.cli.output import write, write_json
from hff.cli.parsing import Parser, UsageError, configuring
from hff.cli.report import PROJECTIONS, SPLITS

KINDS = ("right", "late", "wrong", "hardest")
WHAT = {
    "curves": "learning curves",
    "layers": "accuracy layer by layer",
    "confusion": "confusion matrix",
    "maps": "activation maps",
    "embedding": "feature space with prototypes",
    "hardest": "hardest images",
    "calibration": "calibration of every layer",
}


def main(argv: Sequence[str]) -> None:
    kinds = "; ".join(f"{name}: {text}" for name, text in WHAT.items())
    parser = Parser("plot", f"Draw one figure of a report. {kinds}.")
    parser.add_argument("what", choices=WHAT, metavar="WHAT", help=", ".join(WHAT))
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders")
    text = "a .png or .svg file (WHAT.png in the run folder)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    parser.add_argument("--split", choices=SPLITS, default="test", help="the split of results (test)")
    parser.add_argument("--kind", choices=KINDS, default="wrong", help="the images of maps (wrong)")
    parser.add_argument("--count", type=int, default=4, metavar="N", help="number of images (4)")
    parser.add_argument("--projection", choices=PROJECTIONS, default="auto", help="of embedding (auto)")
    text = "epochs of kept checkpoints for embedding (all that were kept)"
    parser.add_argument("--epochs", metavar="N,N", help=text)
    parser.add_machine_flags()
    given = parser.read(argv)
    if given is None:
        return
    if given.count < 1:
        raise UsageError(f"--count must be at least 1, not {given.count}.")
    if given.out is None and len(given.runs) > 1:
        raise UsageError("A figure of several runs needs a file; give it with --out.")
    out = given.out or given.runs[0] / f"{given.what}.png"
    if out.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"--out must be a .png or .svg file, not {out}.")
    from hff.config import Field
    from hff.plotting import save_figure
    from hff.report.drawings import DRAWINGS, Choices
    from hff.report.report import open_folders
    from hff.training import pick_device

    with configuring():
        pick_device(given.device)
        field = Field("epochs", tuple[int, ...], (), "")
        epochs = None if given.epochs is None else field.parse(given.epochs, "--epochs")
        subjects, others, _ = open_folders(
            given.runs, split=given.split, data_dir=given.data_dir, device=given.device
        )
        if others or not subjects:
            raise UsageError("hff plot draws runs; the figure of a comparison is in its folder.")
    choices = Choices(given.kind, given.count, given.projection, epochs)
    picture = DRAWINGS[given.what](subjects, choices)
    save_figure(picture.figure, out)
    if given.json:
        write_json({"figure": str(out), "alt": picture.alt})
        return
    write(f"{picture.caption}\nThe figure is {out}")
