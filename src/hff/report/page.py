"""The page of a report: one HTML file that needs no network, for screen, paper and screen reader."""

from html import escape
from importlib import resources
from itertools import groupby

from hff.plotting import inline_svg
from hff.report.document import Document, Lines, Paragraph, Part, Picture, Section, Table

SHELL = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<h1>{title}</h1>
</header>
<nav aria-label="Sections">
<ol>
{links}
</ol>
</nav>
<main id="content" tabindex="-1">
{sections}
</main>
<footer>
<p>{footer}</p>
</footer>
</body>
</html>
"""

WIDE = 5
"""A table with more columns may not fit a small screen."""
SMALL = 6.0
"""Two figures of at most this width in inches fit one printed page."""


def to_html(document: Document, footer: str) -> str:
    """The report as one HTML page."""
    links = [f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in document.sections]
    return SHELL.format(
        title=escape(document.title),
        style=resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8").strip(),
        links="\n".join(links),
        sections="\n".join(map(_section, document.sections)),
        footer=escape(footer),
    )


def _section(section: Section) -> str:
    parts = []
    # Pictures that follow each other stand side by side.
    for are_pictures, group in groupby(section.parts, lambda part: isinstance(part, Picture)):
        inside = "\n".join(map(_part, group))
        parts.append(f'<div class="pictures">\n{inside}\n</div>' if are_pictures else inside)
    name, content = section.name, "\n".join(parts)
    heading = f'<h2 id="{name}-title">{escape(section.title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">\n{heading}\n{content}\n</section>'


def _part(part: Part) -> str:
    if isinstance(part, Paragraph):
        return f"<p>{escape(part.text)}</p>"
    if isinstance(part, Lines):
        if part.code:
            return f'<pre tabindex="0"><code>{escape(chr(10).join(part.lines))}</code></pre>'
        return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in part.lines) + "</ul>"
    return _table(part) if isinstance(part, Table) else _picture(part)


def _table(table: Table) -> str:
    columns = list(zip(*table.rows, strict=True))
    marks = [' class="number"' if all(map(_is_number, column)) else "" for column in columns]
    head = "".join(
        f'<th scope="col"{mark}>{escape(each)}</th>' for each, mark in zip(table.header, marks, strict=True)
    )
    rows = []
    for first, *others in table.rows:
        cells = "".join(
            f"<td{mark}>{escape(each)}</td>" for each, mark in zip(others, marks[1:], strict=True)
        )
        rows.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    caption = escape(table.caption)
    # A wide table scrolls on a small screen, and the keyboard can reach it.
    scrolls = f' role="region" aria-label="{caption}" tabindex="0"' if len(columns) > WIDE else ""
    return (
        f'<div class="wide"{scrolls}><table>\n'
        f"<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + "\n</tbody>\n</table></div>"
    )


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in ("-", "–", "+", "≤", "≥", ">")


def _picture(picture: Picture) -> str:
    svg = inline_svg(picture.figure, picture.name)
    label = escape(picture.alt, quote=True)
    width = f"{picture.figure.get_figwidth() * 96:.0f}px"
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    size = ' class="small"' if picture.figure.get_figwidth() <= SMALL else ""
    return f'<figure{size} style="width: {width}">\n{svg}\n{caption}\n</figure>'
