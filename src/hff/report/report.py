"""Writes a report: one HTML page, with Markdown, figures and a CSV file beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hff.errors import UserError, require
from hff.plotting import save_figure
from hff.report.document import Document, Lines, Paragraph, Picture, Section, Value
from hff.report.page import to_html
from hff.report.sections import sections_of
from hff.report.sources import EXHIBITS, runs_in
from hff.report.subject import Subject
from hff.report.values import values_of
from hff.run_group import RunGroup
from hff.training import Run
from hff.training.checkpoint import create_folder, write_atomically

PAGE, MARKDOWN, TABLE, FIGURES = "report.html", "report.md", "report.csv", "figures"


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report."""

    page: Path
    markdown: Path
    table: Path
    figures: tuple[Path, ...]
    document: Document


def write_report(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    split: str = "test",
    images: int = 3,
    projection: str = "auto",
    data_dir: Path | None = None,
    device: str = "auto",
    command: str | None = None,
) -> ReportFiles:
    """Writes a report about runs into a folder.

    Args:
        folders: run folders, folders of several seeds, and folders of comparisons.
        out: the folder to write to.
        split: the split that results, maps and images are taken from. A missing evaluation is computed and
            saved in the run folder, as `hff eval` does.
        images: the number of images of each kind.
        projection: the projection of the feature space: umap, tsne, pca, or auto.
        data_dir: the folder of data files.
        device: the device to compute on.
        command: the command that makes this report again.
    """
    document = make_document(
        folders, split=split, images=images, projection=projection, data_dir=data_dir, device=device,
        command=command,
    )  # fmt: skip
    out = Path(out)
    create_folder(out / FIGURES)
    figures = [
        save_figure(part.figure, out / FIGURES / f"{part.name}.png")
        for part in document.parts()
        if isinstance(part, Picture)
    ]
    write_atomically(out / PAGE, to_html(document, _footer()))
    write_atomically(out / MARKDOWN, document.to_markdown(FIGURES))
    write_atomically(out / TABLE, document.to_csv())
    return ReportFiles(out / PAGE, out / MARKDOWN, out / TABLE, tuple(figures), document)


def make_document(
    folders: Sequence[Path | str],
    *,
    split: str = "test",
    images: int = 3,
    projection: str = "auto",
    data_dir: Path | None = None,
    device: str = "auto",
    command: str | None = None,
) -> Document:
    """The content of a report; the parameters are those of `write_report`."""
    require(images >= 1, f"The number of images must be at least 1, not {images}.")
    subjects, sections, values = open_folders(folders, split=split, data_dir=data_dir, device=device)
    if subjects:
        sections = [*sections_of(subjects, images, projection), *sections]
        values = [*(value for subject in subjects for value in values_of(subject)), *values]
    names = list(dict.fromkeys(Path(folder).name or str(folder) for folder in folders))
    again = _again(subjects, folders, command)
    return Document(f"Report: {', '.join(names)}", (*sections, again), tuple(values))


def open_folders(
    folders: Sequence[Path | str], *, split: str = "test", data_dir: Path | None = None, device: str = "auto"
) -> tuple[list[Subject], list[Section], list[Value]]:
    """The runs in some folders, and the sections and numbers of the other folders."""
    require(len(folders) > 0, "Give at least one run.")
    runs: list[tuple[str, Run, str | None]] = []
    sections: list[Section] = []
    values: list[Value] = []
    for folder in map(Path, folders):
        found = runs_in(folder)
        if found is not None:
            group = folder.name if RunGroup.exists(folder) else None
            runs += [(name, run, group) for name, run in found.items()]
            continue
        exhibit = next((read for mark, read in EXHIBITS.items() if (folder / mark).is_file()), None)
        if exhibit is None:
            raise UserError(f"{folder} is not a folder of a run, of several seeds, or of a comparison.")
        own, numbers = exhibit(folder)
        sections += own
        values += numbers
    names = _distinct([(name, run.folder) for name, run, _ in runs])
    subjects = [
        Subject(run, name, group=group, split=split, data_dir=data_dir, device=device)
        for name, (_, run, group) in zip(names, runs, strict=True)
    ]
    return subjects, sections, values


def _distinct(named: Sequence[tuple[str, Path]]) -> list[str]:
    """The names, with the whole path where a name occurs twice. The same folder twice is refused."""
    paths = [folder.resolve() for _, folder in named]
    for path in paths:
        require(paths.count(path) == 1, f"{path} is given twice; give each run once.")
    names = [name for name, _ in named]
    return [str(folder) if names.count(name) > 1 else name for name, folder in named]


def _again(subjects: Sequence[Subject], folders: Sequence[Path | str], command: str | None) -> Section:
    """The commands of the trainings and of the report."""
    trained = [
        f"{subject.environment['command']}  # {subject.name}"
        for subject in subjects
        if "command" in subject.environment
    ]
    report = command or f"hff.report.write_report({[str(folder) for folder in folders]}, ...)"
    return Section(
        "again",
        "How to make this again",
        (
            Paragraph("The runs were trained by these commands, with all settings in their config.yaml:"),
            Lines(tuple(trained), code=True),
            Paragraph("The report was made by:"),
            Lines((report,), code=True),
        )
        if trained
        else (Paragraph("The report was made by:"), Lines((report,), code=True)),
    )


def _footer() -> str:
    from hff import __version__

    return f"Made by hff {__version__}. All numbers are in {TABLE}; the figures are in the folder {FIGURES}."
