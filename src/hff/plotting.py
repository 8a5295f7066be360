"""The one style of all figures: sizes, colors, legends beside the data, and files as PNG or SVG."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hff.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GRAY = "#1c1e21", "#777b80"
"""Text and axes; notes and reference lines."""
RIGHT, WRONG = "#2b8553", "#c4423b"
"""Texts about right and wrong predictions."""
IN_PAGE = {INK: "currentColor", GRAY: "var(--quiet)", RIGHT: "var(--right)", WRONG: "var(--wrong)"}
"""What these colors are in a page, which may be dark."""
COLORS = (
    "#2878b5", "#e07b26", "#3a9b6c", "#c8559c", "#8a6fd1",
    "#b5872b", "#3fa7c4", "#c9493f", "#7d8a2e", "#8c6d5e",
)  # fmt: skip
"""Colors of methods, runs and classes: distinct, and readable on white and on a dark page."""
MAIN, LIGHT, ACCENT = COLORS[0], "#8fbfe0", COLORS[1]
"""What a figure is about, its weaker companion, and what is compared with it."""
DEPTH = ("#53b3e3", "#3d7fd6", "#8a63d2", "#cf559f", "#e8843c")
"""The colors of layers, from the first to the last; those between are mixed."""
DPI = 130
STYLE: Mapping[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.prop_cycle": f"cycler('color', {list(COLORS)})",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "grid.color": GRAY,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.title_fontsize": 8.5,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "savefig.facecolor": "white",
    # Text in an SVG stays text, so it can be searched and read aloud.
    "svg.fonttype": "none",
    "svg.hashsalt": "hff",
}


@contextmanager
def style(what: str = "The figure") -> Iterator[None]:
    """The style of a figure; also a decorator of functions that draw.

    Args:
        what: what needs matplotlib, as the subject of an error if it is not installed.
    """
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError:
        needs = "need" if what.endswith("s") else "needs"
        raise UserError(f"{what} {needs} matplotlib; install it with: pip install matplotlib") from None
    with matplotlib.rc_context(cast(Any, dict(STYLE))):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of this size in inches, whose parts do not overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def layer_colors(count: int) -> list[str]:
    """A color for each of several layers, in the order of depth."""
    if count <= 1:
        return [DEPTH[1]] * count
    return [_mixed(DEPTH, i / (count - 1)) for i in range(count)]


def colors(count: int) -> list[str]:
    """Distinct colors; with more than there are in the palette, darker and lighter ones follow."""
    found = list(COLORS)
    for end, share in (("#000000", 0.4), ("#ffffff", 0.4)):
        found += [_mixed((each, end), share) for each in COLORS]
    return [found[i % len(found)] for i in range(count)]


def finish(
    axes: "Axes", *, x: str | None = None, y: str | None = None, title: str | None = None, grid: str = "both"
) -> None:
    """Labels the axes, with units, and draws a grid (both, x, y or none) behind the data."""
    if x is not None:
        axes.set_xlabel(x)
    if y is not None:
        axes.set_ylabel(y)
    if title is not None:
        axes.set_title(title)
    if grid != "none":
        axes.grid(visible=True, axis=grid)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def whole_numbers(axes: "Axes") -> None:
    """Whole numbers only on the horizontal axis, such as epochs."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def legend(axes: "Axes", *, title: str | None = None) -> None:
    """A legend to the right of the axes, where it covers no data; none for a single unnamed series."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, title=title)


def legend_below(figure: "Figure", axes: "Axes", columns: int = 6) -> None:
    """One legend below all axes of a figure, with the series of one of them."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        count = min(columns, len(handles))
        figure.legend(handles, labels, loc="outside lower center", ncols=count)


def save_figure(figure: "Figure", path: Path) -> Path:
    """Writes a figure to a .png or .svg file, completely or not at all; returns the path."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise UserError(f"A figure is written to a .png or .svg file, not to {path.name!r}.")
    content = as_png(figure) if path.suffix.lower() == ".png" else as_svg(figure).encode()
    partial = path.with_name(f"partial-{path.name}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def as_png(figure: "Figure") -> bytes:
    """The bytes of a PNG file."""
    content = io.BytesIO()
    with style():
        figure.savefig(content, format="png")
    return content.getvalue()


def as_svg(figure: "Figure") -> str:
    """The text of an SVG file, on white."""
    content = io.StringIO()
    with style():
        # Without a date, the same figure gives the same file.
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def inline_svg(figure: "Figure", name: str) -> str:
    """The <svg> element of a figure for a page: transparent, with the page's colors of text.

    Args:
        figure: the figure.
        name: a name that no other figure of the page has, because identifiers are shared in a page.
    """
    content = io.StringIO()
    with style():
        figure.savefig(content, format="svg", metadata={"Date": None}, transparent=True)
    text = content.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for color, name_in_page in IN_PAGE.items():
        text = text.replace(f"fill: {color}", f"fill: {name_in_page}")
        text = text.replace(f"stroke: {color}", f"stroke: {name_in_page}")
    used = set(re.findall(r"""(?:url\(#|href="#)([^")]+)""", text))
    text = re.sub(
        r' id="([^"]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", text
    )
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text).strip()


def _mixed(anchors: Sequence[str], place: float) -> str:
    """The color at a place from 0 to 1 along a line of colors."""
    parts = len(anchors) - 1
    index = min(int(place * parts), parts - 1)
    (low, high), share = list(pairwise(anchors))[index], place * parts - index
    channels = [
        round((1 - share) * int(low[i : i + 2], 16) + share * int(high[i : i + 2], 16)) for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in channels)
