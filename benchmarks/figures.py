"""Draws the figures of README and docs from results/: python benchmarks/figures.py"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
from collect import READ_OUT, RESULTS
from matplotlib.axes import Axes

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LAYERS = ["#9ecae1", "#4292c6", "#084594"]
BACKPROP = "#d95f0e"
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
    axes.set(title=title, xlabel="epoch", ylabel="validation accuracy (%)")
    axes.set_ylim(bottom=lowest)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="lower right")


def draw_rivals(axes: Axes, data: str, networks: str, lowest: float, highest: float) -> None:
    """Draws the read-out of every method on one kind of network, with its name at the end of the curve."""
    found = curves()
    with (RESULTS / "rivals.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["data"] == data]
    rows = [row for row in rows if row["network"].startswith("mlp") == (networks == "mlp")]
    ends = []
    colors = plt.colormaps["tab20"].colors  # type: ignore[attr-defined]
    for row, color in zip(rows, (*colors[::2], *colors[1::2]), strict=False):
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
    axes.set(title=f"{titles[data]}, {titles[networks]}", xlabel="epoch", ylabel="validation accuracy (%)")
    axes.set_ylim(lowest, highest)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
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
    figure, panels = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for line, (data, *bounds) in zip(panels, (("mnist", 84, 100), ("fashion_mnist", 70, 94)), strict=True):
        for axes, networks in zip(line, ("mlp", "cnn"), strict=True):
            draw_rivals(axes, data, networks, *bounds)
    figure.savefig(IMAGES / "rivals.png")


def main() -> None:
    plt.rcParams.update({"font.size": 10, "figure.dpi": 130})
    rivals()
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    draw(panels[0], "cifar10_cnn", CIFAR10_BACKPROP, "CIFAR-10, CNN 32-64-128", 40)
    draw(panels[1], "fashion_mnist_mlp", "fashion_mnist_mlp_backprop", "Fashion-MNIST, MLP 3 x 2000", 80)
    draw(panels[2], "mnist_mlp", "mnist_mlp_backprop", "MNIST, MLP 3 x 2000", 94)
    figure.savefig(IMAGES / "curves.png")


if __name__ == "__main__":
    main()
