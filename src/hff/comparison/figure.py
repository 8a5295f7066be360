"""The figure of a comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hff.comparison.compare import FIGURE
from hff.comparison.ranking import grouped
from hff.comparison.result import MethodResult
from hff.comparison.results import table_title
from hff.comparison.settings import PROTOCOL, ComparisonSettings
from hff.errors import UserError
from hff.plotting import ACCENT, GRAY, LIGHT, MAIN, finish, new_figure, save_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEST, VALIDATION, CLAIMED, LINE = MAIN, LIGHT, ACCENT, "#bcd7ea"


def draw(results: Sequence[MethodResult], settings: ComparisonSettings, folder: Path) -> Path:
    """Draws accuracy, size, time and memory of all methods by group. Returns the path of the image."""
    return save_figure(comparison_figure(results, settings), folder / FIGURE)


@style()
def comparison_figure(results: Sequence[MethodResult], settings: ComparisonSettings) -> "Figure":
    """Accuracy, size, time and memory of all methods, by group."""
    groups = grouped(result for result in results if result.failure is None)
    if not groups:
        raise UserError("No method could be trained, so there is no figure.")
    headlines: dict[int, str] = {}
    shown: list[MethodResult | None] = []
    """One for each line of the figure; None for the headline of a group."""
    for group, members in groups:
        headlines[len(shown)] = str(group)
        shown += [None, *members]
    figure = new_figure(12, 1.9 + 0.27 * len(shown))
    accuracy, *others = figure.subplots(1, 5, sharey=True, width_ratios=(5, 1.5, 1.5, 1.5, 1.5))
    _draw_accuracy(accuracy, shown)
    costs: dict[str, list[float | None]] = {
        "parameters of\na prediction": _values(shown, "prediction_parameters"),
        "seconds\nper epoch": _values(shown, "seconds_per_epoch"),
        "seconds per\n10,000 predictions": _values(shown, "seconds_per_10000_predictions"),
        "MB added\nby training": _values(shown, "peak_memory_mb"),
    }
    for axes, (title, values) in zip(others, costs.items(), strict=True):
        _draw_cost(axes, values, title)
    note = {"transform": others[0].transAxes, "va": "top", "fontsize": 8, "color": GRAY}
    others[0].text(0, -0.02, "bars are logarithmic", **note)
    places = {place: result for place, result in enumerate(shown) if result is not None}
    accuracy.set_yticks(list(places), [_label(result) for result in places.values()])
    for label, result in zip(accuracy.get_yticklabels(), places.values(), strict=True):
        label.set_fontweight("bold" if result.method.partition(":")[0] == "hff" else "normal")
    for place, headline in headlines.items():
        accuracy.annotate(headline, (0, place + 0.1), xycoords=("axes fraction", "data"), va="center",
                          fontsize=9, style="italic", color=GRAY)  # fmt: skip
    accuracy.set_ylim(len(shown) - 0.4, -0.6)
    figure.suptitle(f"{table_title(settings)} (protocol {PROTOCOL})", fontsize=11)
    return figure


def _label(result: MethodResult) -> str:
    kind = result.network.partition(" ")[0]
    return result.method if kind == "mlp" else f"{result.method} ({kind})"


def _draw_accuracy(axes: "Axes", results: Sequence[MethodResult | None]) -> None:
    for place, result in enumerate(results):
        if result is None:
            continue
        ends = [each for each in (result.validation_accuracy, result.test_accuracy) if each is not None]
        if ends:
            axes.plot([min(ends), max(ends)], [place, place], color=VALIDATION, linewidth=2, zorder=1)
        if result.test_accuracy is not None and result.test_std:
            axes.errorbar(result.test_accuracy, place, xerr=result.test_std, color=TEST, capsize=3, zorder=2)
    _dots(axes, _values(results, "validation_accuracy"), VALIDATION, "validation", 34)
    _dots(axes, _values(results, "test_accuracy"), TEST, "test", size=44)
    claims = _values(results, "claimed_value")
    if any(claim is not None for claim in claims):
        _dots(axes, claims, CLAIMED, "claimed by the paper", size=44, hollow=True)
    finish(axes, x="accuracy (%)")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.04)
    for place, result in enumerate(results):
        if result is not None and result.test_accuracy is not None:
            axes.annotate(f"{result.test_accuracy:.1f}", (1.01, place), xycoords=("axes fraction", "data"),
                          va="center", fontsize=8, color=TEST)  # fmt: skip
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)


def _dots(
    axes: "Axes", values: Sequence[float | None], color: str, label: str, size: float, hollow: bool = False
) -> None:
    found = [(value, place) for place, value in enumerate(values) if value is not None]
    if found:
        xs, ys = zip(*found, strict=True)
        face = "none" if hollow else color
        axes.scatter(xs, ys, s=size, facecolors=face, edgecolors=color, linewidths=1.4, label=label, zorder=3)


def _draw_cost(axes: "Axes", values: Sequence[float | None], title: str) -> None:
    """Draws one number per method on a logarithmic axis, because costs differ by orders of magnitude."""
    found = [value for value in values if value]
    if found:
        lowest, highest = min(found) / 1.6, max(found)
        for place, value in enumerate(values):
            if value:
                axes.plot([lowest, value], [place, place], color=LINE, linewidth=5, solid_capstyle="butt")
                axes.annotate(_in_words(value), (value, place), (4, 0), textcoords="offset points",
                              va="center", fontsize=8, color=GRAY)  # fmt: skip
        axes.set_xscale("log")
        # Leave room for the number of the longest bar.
        axes.set_xlim(lowest, highest * (highest / lowest) ** 0.45)
    axes.set_title(title, fontsize=9)
    axes.xaxis.set_visible(False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _values(results: Sequence[MethodResult | None], name: str) -> list[float | None]:
    """A number of each result; None where there is no result."""
    return [None if result is None else getattr(result, name) for result in results]


def _in_words(value: float) -> str:
    """A number with three digits at most, such as 0.142, 18 or 652 k."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
