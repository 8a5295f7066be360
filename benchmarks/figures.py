"""Draws the figures of README and docs from results/: python benchmarks/figures.py"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
LAYERS = ["#9ecae1", "#4292c6", "#084594"]
BACKPROP = "#d95f0e"
CIFAR10_BACKPROP = "cifar10_cnn_backprop_2e-3"
"""The run with the learning rate that did best on validation."""


def curves() -> dict[tuple[str, str], list[tuple[int, float]]]:
    """(experiment, layer) -> [(epoch, validation accuracy)], of the first seed measured."""
    seeds: dict[str, str] = {}
    found: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    with (ROOT / "results" / "curves.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if seeds.setdefault(row["experiment"], row["seed"]) == row["seed"]:
                point = int(row["epoch"]), float(row["validation_accuracy"])
                found[row["experiment"], row["layer"]].append(point)
    return found


def draw(axes: Axes, experiment: str, rival: str, title: str, lowest: float) -> None:
    """The layers of HFF and, dashed, the same network trained by backprop."""
    for (name, layer), points in curves().items():
        epochs, shares = zip(*points, strict=True)
        if name == experiment:
            axes.plot(epochs, shares, color=LAYERS[int(layer)], linewidth=2, label=f"HFF, layer {layer}")
        elif name == rival:
            axes.plot(epochs, shares, color=BACKPROP, linestyle="--", linewidth=2, label="backprop")
    axes.set(title=title, xlabel="epoch", ylabel="validation accuracy (%)")
    axes.set_ylim(bottom=lowest)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="lower right")


def main() -> None:
    plt.rcParams.update({"font.size": 10, "figure.dpi": 130})
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    draw(panels[0], "cifar10_cnn", CIFAR10_BACKPROP, "CIFAR-10, CNN 32-64-128", 40)
    draw(panels[1], "fashion_mnist_mlp", "fashion_mnist_mlp_backprop", "Fashion-MNIST, MLP 3 x 2000", 80)
    draw(panels[2], "mnist_mlp", "mnist_mlp_backprop", "MNIST, MLP 3 x 2000", 94)
    target = ROOT / "docs" / "images" / "curves.png"
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target)


if __name__ == "__main__":
    main()
