"""A report is one accessible page without a network, and its numbers are those of the runs."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hff.cli import main
from hff.errors import UserError
from hff.plotting import COLORS, as_svg, inline_svg, layer_colors, new_figure, save_figure, style
from hff.report import ReportFiles, write_report
from hff.report.document import Document, Paragraph, Picture, Section, Table
from hff.report.sources import read_results
from hff.training import Run

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """The elements of a page: it must be well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("th", "td"):
            self.tables[-1][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def table(self, first: str) -> list[list[str]]:
        """The rows of the table that has a row with this name."""
        return next(rows for rows in self.tables if any(row[0] == first for row in rows))


def page_of(files: ReportFiles) -> Page:
    return Page(files.page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(one: ReportFiles) -> Page:
    return page_of(one)


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def test_the_numbers_of_the_page_are_those_of_the_run(page: Page, runs: Path) -> None:
    run = Run(runs / "first")
    saved = json.loads((run.folder / "eval-test.json").read_text())
    rows = {row[0]: row[1:] for row in page.table("layer 0")}
    for layer in saved["layers"]:
        found = rows[f"layer {layer['layer']}"]
        assert found == [percent(layer["accuracy"]), percent(layer["top5"]), f"{layer['bits']:.2f}"]
    assert rows["prediction"][0] == percent(saved["accuracy"])
    costs = {row[0]: row[1] for row in page.table("parameters")}
    summary = run.summary()
    assert summary is not None
    assert costs["parameters"] == f"{summary['parameters']:,}"
    assert costs["training with validation"] == f"{summary['seconds']:.1f} s"
    errors = sum(map(sum, saved["confusion"])) - sum(row[i] for i, row in enumerate(saved["confusion"]))
    listed = [int(row[-1]) for row in page.table("first") if row[0] == "first"]
    assert 0 < sum(listed) <= errors
    assert listed == sorted(listed, reverse=True)


def test_the_csv_has_every_number_of_the_run(one: ReportFiles, runs: Path) -> None:
    run = Run(runs / "first")
    rows = list(csv.DictReader(one.table.read_text().splitlines()))
    saved = json.loads((run.folder / "eval-test.json").read_text())

    def value(quantity: str, split: str, layer: str = "", epoch: str = "") -> float:
        wanted = {"quantity": quantity, "split": split, "layer": layer, "epoch": epoch}
        (found,) = (row for row in rows if all(row[key] == each for key, each in wanted.items()))
        return float(found["value"])

    assert value("accuracy", "test") == pytest.approx(100 * saved["accuracy"])
    for layer in saved["layers"]:
        assert value("bits", "test", str(layer["layer"])) == pytest.approx(layer["bits"])
    for record in run.metrics():
        for number, share in record["validation_accuracy"].items():
            assert value("accuracy", "validation", number, str(record["epoch"])) == pytest.approx(100 * share)
        for group, loss in record["loss"].items():
            assert value("loss", "train", group[5:], str(record["epoch"])) == pytest.approx(loss)


def test_the_page_needs_no_network(one: ReportFiles) -> None:
    text = one.page.read_text(encoding="utf-8")
    loaded = re.findall(r"""(?:src|xlink:href|(?<!a )href)=["']([^"']+)""", text) + re.findall(
        r"url\(([^)]+)", text
    )
    assert loaded
    assert [each for each in loaded if not each.startswith(("#", "data:"))] == []
    assert "<script" not in text
    assert "@import" not in text


def test_the_page_is_usable_without_sight_and_mouse(page: Page) -> None:
    (html,) = page.all("html")
    assert html["lang"] == "en"
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert len(page.all(landmark)) == 1
    first_link = page.all("a")[0]
    assert (first_link["class"], first_link["href"]) == ("skip", "#content")
    ids = [each["id"] for _, each in page.elements if each.get("id")]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert str(link["href"]).removeprefix("#") in ids
    for section in page.all("section"):
        assert section["aria-labelledby"] in ids
    pictures = page.all("svg")
    assert len(pictures) >= 8
    for picture in pictures:
        assert picture["role"] == "img"
        assert len(str(picture["aria-label"])) > 40
    assert len(page.all("caption")) == len(page.all("table")) >= 4
    assert all(header.get("scope") in ("col", "row") for header in page.all("th"))


def test_identifiers_inside_pictures_lead_to_their_own_picture(one: ReportFiles) -> None:
    text = one.page.read_text(encoding="utf-8")
    for picture in re.findall(r"<svg .*?</svg>", text, flags=re.DOTALL):
        used = set(re.findall(r"""(?:url\(#|href="#)([^")]+)""", picture))
        assert used <= set(re.findall(r' id="([^"]+)"', picture))


def test_a_report_has_every_section(one: ReportFiles) -> None:
    names = [section.name for section in one.document.sections]
    images = ["maps", "space", "hardest"]
    assert names == ["trained", "accuracy", "curves", "confusion", *images, "calibration", "cost", "again"]
    pictures = [part.name for part in one.document.parts() if isinstance(part, Picture)]
    assert {"maps-right-first", "maps-wrong-first", "embedding-first", "hardest-first"} <= set(pictures)
    text = one.page.read_text(encoding="utf-8")
    assert "hff report first" in text
    assert "layer 1, epoch 1" in text  # from the kept checkpoint


def test_no_figure_is_blank(one: ReportFiles) -> None:
    assert len(one.figures) >= 8
    for path in one.figures:
        assert np.asarray(Image.open(path).convert("L")).std() > 5, path


def test_the_markdown_shows_the_figures_and_the_same_tables(one: ReportFiles, page: Page) -> None:
    text = one.markdown.read_text(encoding="utf-8")
    for path in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (one.markdown.parent / path).is_file()
    for rows in page.tables:
        for row in rows:
            assert f"| {' | '.join(row)} |".replace("_", "\\_") in text


def test_runs_stand_side_by_side(several: ReportFiles) -> None:
    page = page_of(several)
    rows = {row[0]: row[1:] for row in page.table("group, mean ± std")}
    assert list(rows) == ["run", "first", "second", "group/seed-0", "group/seed-1", "group, mean ± std"]
    assert rows["second"][0] == "–"  # Only the last layer of backprop has scores.
    seeds = [float(rows[f"group/seed-{seed}"][-1].split()[0]) for seed in (0, 1)]
    assert rows["group, mean ± std"][-1] == f"{np.mean(seeds):.2f} ± {np.std(seeds, ddof=1):.2f} %"
    pictures = [part.name for part in several.document.parts() if isinstance(part, Picture)]
    assert "hardest-group-seed-0" in pictures
    assert "hardest-group-seed-1" not in pictures  # Pictures of the first seed only.
    assert len(pictures) == len(set(pictures))


def test_claims_stand_beside_measurements(tmp_path: Path, runs: Path) -> None:
    from hff.report.sections import sections_of
    from hff.report.subject import Subject

    class Claimed(Subject):
        @property
        def claim(self):  # type: ignore[no-untyped-def, override]
            from hff.paper import claimed

            return claimed("hff", "mnist", "mlp")

    (section,) = (
        each for each in sections_of([Claimed(Run(runs / "first"))], 1, "pca") if each.name == "claims"
    )
    (table,) = (part for part in section.parts if isinstance(part, Table))
    name, printed, measured, difference = table.rows[0]
    assert (name, printed) == ("first, prediction", "98.59 ± 0.07 %")
    saved = json.loads((runs / "first" / "eval-test.json").read_text())["accuracy"]
    assert measured == percent(saved)
    assert float(difference) == pytest.approx(100 * saved - 98.59, abs=0.01)


def test_a_comparison_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "compared"
    argv = ["compare", "--data", "digits", "--epochs", "1", "--network", "mlp", "--network.widths", "16"]
    assert main([*argv, "--methods", "hff,backprop", "--out", str(folder), "--json"]) == 0
    files = write_report([folder], tmp_path / "report")
    rows = {row[0]: row for row in page_of(files).table("hff")}
    (hff,) = (each for each in read_results(folder / "comparison.csv") if each.method == "hff")
    assert f"{hff.validation_accuracy:.2f}" in rows["hff"]
    assert f"{hff.test_accuracy:.2f}" in rows["hff"]
    assert [section.name for section in files.document.sections] == ["comparison-compared", "again"]


def test_a_run_whose_data_is_gone_is_still_reported(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(80, 4))
    np.savez(tmp_path / "data.npz", x=x, y=(x[:, 0] > 0).astype(int))
    argv = ["train", "--data", "npz", "--data.path", str(tmp_path / "data.npz"), "--network.widths", "8"]
    assert main([*argv, "--epochs", "2", "--quiet", "--out", str(tmp_path / "run")]) == 0
    text = write_report([tmp_path / "run"], tmp_path / "with", projection="pca").markdown.read_text()
    assert "rows of a table" in text
    assert "![" in text
    (tmp_path / "data.npz").unlink()
    (tmp_path / "run" / "eval-test.json").unlink()
    text = write_report([tmp_path / "run"], tmp_path / "without").markdown.read_text()
    assert "no longer at" in text
    assert "figures/curves" in text


def test_reports_are_refused_in_one_sentence(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="is given twice"):
        write_report([runs / "first", runs / "first"], tmp_path)
    with pytest.raises(UserError, match="is not a folder of a run"):
        write_report([runs], tmp_path)
    assert main(["report", str(runs / "first"), str(runs / "second")]) == 2
    assert "give it with --out" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert "is not a folder of a run" in capsys.readouterr().err


def test_text_of_a_report_is_escaped() -> None:
    from hff.report.page import to_html

    table = Table("a < b", ("", "<i>"), (("x|y", "*1*"),))
    document = Document("<script>", (Section("s", "A & B", (Paragraph("1 < 2"), table)),))
    text = to_html(document, "end")
    assert "<script>" not in text
    assert "A &amp; B" in text
    assert Page(text).tables == [[["", "<i>"], ["x|y", "*1*"]]]
    assert "x\\|y" in document.to_markdown()


def test_a_figure_in_a_page_takes_the_color_of_its_text() -> None:
    with style():
        figure = new_figure(2, 2)
        axes = figure.subplots()
        axes.set_title("title")
    text = inline_svg(figure, "one")
    assert "currentColor" in text
    assert "#1c1e21" not in text
    assert "#ffffff" not in text
    assert ">title</text>" in text
    assert as_svg(figure) == as_svg(figure)


def test_figures_are_png_or_svg(tmp_path: Path) -> None:
    figure = new_figure(1, 1)
    with pytest.raises(UserError, match=r"written to a \.png or \.svg file"):
        save_figure(figure, tmp_path / "figure.pdf")
    assert Image.open(save_figure(figure, tmp_path / "figure.png")).size == (130, 130)
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]


def test_layers_have_different_colors() -> None:
    assert len(set(layer_colors(16))) == 16
    assert len(set(COLORS)) == 10
