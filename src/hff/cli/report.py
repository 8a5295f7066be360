"""`hff report`: a page about runs, with tables, figures and the command that makes it again."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from hff.cli.output import write, write_json
from hff.cli.parsing import Parser, UsageError, configuring

PROJECTIONS = ("auto", "umap", "tsne", "pca")
SPLITS = ("test", "validation", "train", "all")


def main(argv: Sequence[str]) -> None:
    parser = Parser("report", "Write a page about runs, side by side. It opens without a network.")
    text = "run folders, also with several seeds, and folders of comparisons"
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=text)
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder to write to (report in the run)")
    parser.add_argument("--split", choices=SPLITS, default="test", help="the split to report on (test)")
    text = "number of images of each kind with activation maps (3)"
    parser.add_argument("--images", type=int, default=3, metavar="N", help=text)
    text = "the feature space by UMAP, t-SNE or PCA (auto: UMAP if umap-learn is installed, else t-SNE)"
    parser.add_argument("--projection", choices=PROJECTIONS, default="auto", help=text)
    parser.add_machine_flags()
    given = parser.read(argv)
    if given is None:
        return
    if given.out is None and len(given.runs) > 1:
        raise UsageError("Several runs need a folder for their report; give it with --out.")
    from hff.report import write_report
    from hff.report.report import open_folders
    from hff.training import pick_device

    out = given.out or given.runs[0] / "report"
    with configuring():
        pick_device(given.device)
        open_folders(given.runs)
    files = write_report(
        given.runs,
        out,
        split=given.split,
        images=given.images,
        projection=given.projection,
        data_dir=given.data_dir,
        device=given.device,
        command=shlex.join(["hff", "report", *argv]),
    )
    if given.json:
        paths = {"page": files.page, "markdown": files.markdown, "table": files.table}
        figures = [str(path) for path in files.figures]
        write_json({**{name: str(path) for name, path in paths.items()}, "figures": figures})
        return
    others = f"{files.markdown.name}, {files.table.name} and the figures"
    write(f"The report is {files.page}. Beside it are {others}.")
