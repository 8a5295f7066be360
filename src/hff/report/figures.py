"""The figures of a report: accuracy by layer, confusions, calibration, images."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hff.explain import Answers, reliability
from hff.explain.figures import show_image
from hff.plotting import (
    GRAY,
    INK,
    RIGHT,
    WRONG,
    colors,
    finish,
    layer_colors,
    legend,
    new_figure,
    style,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CELLS = 12
"""With more classes, the cells of a confusion matrix have no numbers."""
MOST_NAMES = 25
"""With more classes, the axes of a confusion matrix have numbers of classes."""
MOST_LAYERS = 6
"""With more layers, the calibration of some of them is drawn."""


@style()
def accuracy_by_layer(accuracies: Sequence[tuple[str, dict[int, float], float]], split: str) -> "Figure":
    """A line for each run, from (name, share of correct predictions of each layer, that of the method)."""
    figure = new_figure(6.4, 3.0)
    axes = figure.subplots()
    for (name, layers, _), color in zip(accuracies, colors(len(accuracies)), strict=True):
        shares = [100 * share for share in layers.values()]
        axes.plot(list(layers), shares, marker="o", color=color, label=name)
        for layer, share in zip(layers, shares, strict=True):
            if len(accuracies) == 1 and len(layers) <= 16:
                axes.annotate(f"{share:.1f}", (layer, share), (0, 6), textcoords="offset points", ha="center",
                              fontsize=8)  # fmt: skip
    finish(axes, x="layer", y=f"{split} accuracy (%)", grid="y")
    axes.margins(x=0.08, y=0.18)
    whole_numbers(axes)
    if len(accuracies) > 1:
        legend(axes)
    return figure


@style()
def confusion(matrices: Sequence[tuple[str, Sequence[Sequence[int]]]], names: Sequence[str]) -> "Figure":
    """A panel for each run, from (name, counts): rows are true classes, columns are predicted ones."""
    columns = min(2, len(matrices))
    rows = -(-len(matrices) // columns)
    side = 4.0 if len(names) <= MOST_NAMES else 5.0
    figure = new_figure((side + 0.3) * columns + 0.9, side * rows)
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    image = None
    for axes, (name, counts) in zip(grid, matrices, strict=False):
        table = torch.tensor(counts, dtype=torch.float64)
        shares = 100 * table / table.sum(1, keepdim=True).clamp_min(1)
        image = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=100)
        axes.spines[["top", "right"]].set_visible(True)
        if len(names) <= MOST_CELLS:
            for i, line in enumerate(counts):
                for j, count in enumerate(line):
                    if count:
                        color = "white" if shares[i, j] > 55 else "black"
                        axes.text(j, i, str(count), ha="center", va="center", fontsize=7.5, color=color)
        if len(names) <= MOST_NAMES:
            flat = max(map(len, names)) <= 2
            axes.set_xticks(range(len(names)), names, rotation=0 if flat else 90, fontsize=7.5)
            axes.set_yticks(range(len(names)), names, fontsize=7.5)
        title = name if len(matrices) > 1 else None
        finish(axes, x="predicted class", y="true class", title=title, grid="none")
    for axes in grid[len(matrices) :]:
        axes.set_axis_off()
    assert image is not None
    bar = figure.colorbar(image, ax=list(grid), shrink=0.7)
    bar.set_label("share of the true class (%)")
    bar.outline.set_edgecolor(GRAY)
    return figure


@style()
def calibration(answers: Sequence[tuple[str, Answers]]) -> "Figure":
    """A panel for each run: how often each layer is right at each confidence."""
    columns = min(3, len(answers))
    rows = -(-len(answers) // columns)
    figure = new_figure(3.5 * columns + 1.2, 3.1 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (name, found) in zip(grid, answers, strict=False):
        _calibration(axes, found)
        title = name if len(answers) > 1 else None
        finish(axes, x="mean probability of the prediction (%)", y="correct predictions (%)", title=title)
        axes.set_aspect("equal")
        axes.set_xlim(0, 102)
        axes.set_ylim(0, 102)
        legend(axes)
    for axes in grid[len(answers) :]:
        axes.set_axis_off()
    return figure


def _calibration(axes: "Axes", answers: Answers) -> None:
    axes.plot([0, 100], [0, 100], color=GRAY, linestyle="--", linewidth=1, label="perfect")
    layers = list(answers.layers)
    palette = dict(zip(layers, layer_colors(len(layers)), strict=True))
    if len(layers) > MOST_LAYERS:
        step = (len(layers) - 1) / (MOST_LAYERS - 1)
        layers = sorted({layers[round(i * step)] for i in range(MOST_LAYERS)})
    for layer in layers:
        bins = reliability(answers, layer)
        rows = zip(bins.samples, bins.confidence, bins.accuracy, strict=True)
        points = [(sure, right) for n, sure, right in rows if n]
        axes.plot(
            [100 * sure for sure, _ in points],
            [100 * right for _, right in points],
            marker="o",
            markersize=3.5,
            color=palette[layer],
            label=f"layer {layer}",
        )


@style()
def image_grid(images: Tensor, notes: Sequence[tuple[str, str, str]]) -> "Figure":
    """Images [N, C, H, W] from 0 to 1, each with (true class, predicted class, note) below it."""
    columns = min(8, len(images))
    rows = -(-len(images) // columns)
    figure = new_figure(1.25 * columns + 0.1, 1.75 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, image, (truth, predicted, note) in zip(grid, images, notes, strict=False):
        show_image(axes, image)
        axes.set_title(truth, fontsize=8.5, color=INK, pad=3)
        right = truth == predicted
        axes.set_xlabel(f"{predicted}\n{note}", fontsize=8, color=RIGHT if right else WRONG, labelpad=3)
    for axes in grid[len(images) :]:
        axes.set_axis_off()
    return figure
