"""The figure of a benchmark."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.bench.result import BenchResult, Median
from hff.plotting import GRAY, finish, legend_below, new_figure, save_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]


@style()
def draw(result: BenchResult, folder: Path) -> Path:
    """Draws the result of a benchmark into a folder; returns the path of the image."""
    figure = new_figure(10, 4.5)
    DRAWN[result.name](figure, result.rows)
    figure.suptitle(f"hff bench {result.name} ({result.machine['processor']})", fontsize=10)
    folder.mkdir(parents=True, exist_ok=True)
    return save_figure(figure, folder / f"{result.name}.png")


def _draw_steps(figure: "Figure", rows: Sequence[Row]) -> None:
    threads = sorted({row["threads"] for row in rows})
    for axes, count in zip(figure.subplots(1, len(threads), squeeze=False)[0], threads, strict=True):
        own = [row for row in rows if row["threads"] == count]
        _draw_bars(axes, own, "network", "method", "ratio_to_backprop")
        title = f"{count} thread{'s' * (count > 1)}"
        finish(axes, y="time of a step / backprop", title=title, grid="y")
    legend_below(figure, axes)


def _draw_epochs(figure: "Figure", rows: Sequence[Row]) -> None:
    threads = sorted({row["threads"] for row in rows})
    for axes, count in zip(figure.subplots(1, len(threads), squeeze=False)[0], threads, strict=True):
        own = [row for row in rows if row["threads"] == count and row["method"] != "backprop"]
        bars = [
            {**row, "of": f"{row['method']}, {what}", "ratio": row[f"{what}_ratio"]}
            for row in own
            for what in ("step", "epoch")
        ]
        _draw_bars(axes, bars, "network", "of", "ratio")
        finish(axes, y="time / backprop", title=f"{count} thread{'s' * (count > 1)}", grid="y")
    legend_below(figure, axes)


def _draw_bars(axes: "Axes", rows: Sequence[Row], group: str, series: str, value: str) -> None:
    groups, names = (list(dict.fromkeys(row[key] for row in rows)) for key in (group, series))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        own = [row for row in rows if row[series] == name and row[value] is not None]
        places = [groups.index(row[group]) + (number - (len(names) - 1) / 2) * width for row in own]
        middles = [row[value].median for row in own]
        errors = [[abs(row[value].median - end(row[value])) for row in own] for end in (_low, _high)]
        axes.bar(places, middles, 0.9 * width, yerr=errors, label=name, error_kw={"linewidth": 0.8})
    if "ratio" in value:
        axes.axhline(1, color=GRAY, linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(groups)), [str(each) for each in groups], fontsize=8)


def _low(value: Median) -> float:
    return value.low


def _high(value: Median) -> float:
    return value.high


def _draw_compiled(figure: "Figure", rows: Sequence[Row]) -> None:
    fewest = min(row["threads"] for row in rows)
    own = [row for row in rows if row["threads"] == fewest]
    for axes, other in zip(figure.subplots(1, 2), ("default", "autograd"), strict=True):
        _draw_bars(axes, own, "network", "method", f"ratio_to_{other}")
        axes.set_title(f"time of a compiled step / {other}, {fewest} thread{'s' * (fewest > 1)}", fontsize=9)


def _draw_memory(figure: "Figure", rows: Sequence[Row]) -> None:
    largest = max(row["batch_size"] for row in rows)
    own = [row for row in rows if row["batch_size"] == largest]
    axes, times = figure.subplots(1, 2)
    for name in dict.fromkeys(row["contender"] for row in own):
        line = [row for row in own if row["contender"] == name]
        depths = [row["convolutions"] for row in line]
        axes.plot(depths, [row["peak_mb"] for row in line], marker="o", label=name)
        times.plot(depths, [row["time_ratio"].median for row in line], marker="o", label=name)
    for each, title in ((axes, "peak memory of training (MB)"), (times, "time of a step / backprop")):
        each.set_xscale("log", base=2)
        each.set_xticks(sorted({row["convolutions"] for row in own}), minor=False)
        each.xaxis.set_major_formatter("{x:.0f}")
        finish(each, x=f"convolutions of 64 channels, batch size {largest}", y=title)
    legend_below(figure, axes, columns=3)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:.0f}")


def _draw_inference(figure: "Figure", rows: Sequence[Row]) -> None:
    sizes = sorted({row["batch_size"] for row in rows})
    fewest = min(row["threads"] for row in rows)
    for axes, size in zip(figure.subplots(1, len(sizes), squeeze=False)[0], sizes, strict=True):
        own = [row for row in rows if row["batch_size"] == size and row["threads"] == fewest]
        _draw_bars(axes, own, "classes", "method", "ms_per_image")
        axes.set_yscale("log")
        title = f"batch size {size}, {fewest} thread{'s' * (fewest > 1)}"
        finish(axes, x="classes", y="ms per image", title=title, grid="y")
    legend_below(figure, axes)


def _draw_convergence(figure: "Figure", rows: Sequence[Row]) -> None:
    shown = {
        "seconds": "until it was held for 3 epochs",
        "seconds_to_reach": "until it was reached, and then held",
    }
    targets, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("target", "method"))
    width = 0.8 / len(names)
    for axes, (value, title) in zip(figure.subplots(1, len(shown)), shown.items(), strict=True):
        for number, name in enumerate(names):
            own = [row for row in rows if row["method"] == name and row[value] is not None]
            places = [targets.index(row["target"]) + (number - (len(names) - 1) / 2) * width for row in own]
            spread = [row[f"{value}_std"] or 0 for row in own]
            axes.bar(places, [row[value] for row in own], 0.9 * width, yerr=spread, label=name)
        axes.set_xticks(range(len(targets)), [f"{target:.0%}" for target in targets])
        finish(axes, x="validation accuracy", y="seconds of training", title=title, grid="y")
    legend_below(figure, axes)


DRAWN: dict[str, Callable[["Figure", Sequence[Row]], None]] = {
    "step": _draw_steps,
    "epoch": _draw_epochs,
    "memory": _draw_memory,
    "inference": _draw_inference,
    "convergence": _draw_convergence,
    "compile": _draw_compiled,
}
"""How the rows of each benchmark are drawn."""
