"""Draws the figures of README and docs from results/: python benchmarks/figures.py"""

import csv
from collections import defaultdict
from pathlib import Path

from collect import READ_OUT, RESULTS
from matplotlib.axes import Axes

from hff.plotting import INK, colors, finish, layer_colors, legend, new_figure, save_figure, style

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LAYERS = layer_colors(3)
BACKPROP = INK
CIFAR10_BACKPROP = "cifar10_cnn_backprop"
"""The run with the best learning rate on validation."""


def curves() -> dict[tuple[str, str], list[tuple[int, float]]]:
    """(experiment, layer) -> [(epoch, validation accuracy)] of the first measured seed."""
    seeds: dict[str, str] = {}
    found: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    with (RESULTS / "curves.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if seeds.setdefault(row["experiment"], row["seed"]) == row["seed"]:
                point = int(row["epoch"]), float(row["validation_accuracy"])
                found[row["experiment"], row["layer"]].append(point)
    return found


def draw(axes: Axes, experiment: str, rival: str, title: str, lowest: float) -> None:
    """Draws the layers of HFF and, dashed, the same network trained by backprop."""
    for (name, layer), points in curves().items():
        epochs, shares = zip(*points, strict=True)
        if name == experiment and layer.isdigit():
            axes.plot(epochs, shares, color=LAYERS[int(layer)], linewidth=2, label=f"HFF, layer {layer}")
        elif name == rival and layer.isdigit():
            axes.plot(epochs, shares, color=BACKPROP, linestyle="--", linewidth=2, label="backprop")
    finish(axes, x="epoch", y="validation accuracy (%)", title=title, grid="y")
    axes.set_ylim(bottom=lowest)


def draw_rivals(axes: Axes, data: str, networks: str, lowest: float, highest: float) -> None:
    """Draws the read-out of every method on one kind of network, with its name at the end of the curve."""
    found = curves()
    with (RESULTS / "rivals.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["data"] == data]
    rows = [row for row in rows if row["network"].startswith("mlp") == (networks == "mlp")]
    ends = []
    for row, color in zip(rows, colors(len(rows)), strict=True):
        epochs, shares = zip(*found[f"{data}_{row['subject']}_small", READ_OUT], strict=True)
        yardstick = row["method"] in ("hff", "backprop")
        style = "--" if row["method"] == "backprop" else "-" if len(epochs) > 1 else "o"
        axes.plot(epochs, shares, style, color=color, linewidth=2.5 if yardstick else 1.5)
        ends.append((shares[-1], row["method"], color))
    for place, (share, name, color) in zip(
        spread([share for share, *_ in sorted(ends)], lowest, highest, (highest - lowest) / 26),
        sorted(ends),
        strict=True,
    ):
        axes.annotate(
            f"{name} {share:.1f}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            color=color,
            va="center",
            fontsize=8,
            annotation_clip=False,
        )
    titles = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "mlp": "MLP 3 x 1000", "cnn": "small CNN"}
    title = f"{titles[data]}, {titles[networks]}"
    finish(axes, x="epoch", y="validation accuracy (%)", title=title, grid="y")
    axes.set_ylim(lowest, highest)
    axes.margins(x=0)


def spread(values: list[float], lowest: float, highest: float, gap: float) -> list[float]:
    """Moves the sorted values as little as possible, so that they stay within bounds and `gap` apart."""
    places: list[float] = []
    for value in values:
        places.append(max(value, places[-1] + gap if places else lowest))
    for i in reversed(range(len(places))):
        places[i] = min(places[i], places[i + 1] - gap if i + 1 < len(places) else highest)
    return places


def rivals() -> None:
    figure = new_figure(12, 8)
    panels = figure.subplots(2, 2)
    for line, (data, *bounds) in zip(panels, (("mnist", 84, 100), ("fashion_mnist", 70, 94)), strict=True):
        for axes, networks in zip(line, ("mlp", "cnn"), strict=True):
            draw_rivals(axes, data, networks, *bounds)
    save_figure(figure, IMAGES / "rivals.png")


@style()
def main() -> None:
    rivals()
    figure = new_figure(12, 3.8)
    panels = figure.subplots(1, 3)
    draw(panels[0], "cifar10_cnn", CIFAR10_BACKPROP, "CIFAR-10, CNN 32-64-128", 40)
    draw(panels[1], "fashion_mnist_mlp", "fashion_mnist_mlp_backprop", "Fashion-MNIST, MLP 3 x 2000", 80)
    draw(panels[2], "mnist_mlp", "mnist_mlp_backprop", "MNIST, MLP 3 x 2000", 94)
    legend(panels[-1])
    save_figure(figure, IMAGES / "curves.png")


if __name__ == "__main__":
    main()
