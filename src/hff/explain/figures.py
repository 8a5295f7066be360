"""The figures of activation maps and embeddings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor

from hff.explain.feature_space import TITLES as PROJECTIONS
from hff.explain.feature_space import Embedding, LayerEmbedding
from hff.explain.maps import TITLES, ActivationMaps, LayerMaps
from hff.plotting import GRAY, INK, RIGHT, WRONG, colors, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL, NARROWEST = 1.25, 4.2
"""The side of an image, and the smallest width of a figure, in inches."""
SIGNED, POSITIVE = "RdBu_r", "magma"
MOST_CLASSES = 10
"""With more classes, an embedding shows those with the most samples."""


@style()
def draw_maps(maps: ActivationMaps) -> "Figure":
    """A row for each image: the image, then the map of every layer over it, and what the layer predicts."""
    rows, columns = len(maps), 1 + len(maps.layers)
    figure = new_figure(max(CELL * columns + 0.5, NARROWEST), (CELL + 0.42) * rows + 0.75)
    grid = figure.subplots(rows, columns, squeeze=False)
    for i, line in enumerate(grid):
        truth = None if maps.labels is None else int(maps.labels[i])
        show_image(line[0], maps.images[i])
        name = maps.titles[i] if truth is None and maps.titles else "" if truth is None else maps.names[truth]
        _title(line[0], name or f"image {i}", None)
        for axes, layer in zip(line[1:], maps.layers, strict=True):
            show_image(axes, maps.images[i], faint=True)
            _overlay(axes, layer, i, maps)
            predicted = int(layer.predicted[i])
            share = "" if layer.probabilities is None else f" ({100 * float(layer.probabilities[i]):.0f} %)"
            _title(axes, maps.names[predicted] + share, None if truth is None else predicted == truth)
            if int(layer.classes[i]) != predicted:
                axes.set_xlabel(f"for {maps.names[int(layer.classes[i])]}", fontsize=8, color=GRAY)
    grid[0][0].text(0.5, 1.3, "image", ha="center", transform=grid[0][0].transAxes, weight="bold")
    for axes, layer in zip(grid[0][1:], maps.layers, strict=True):
        axes.text(0.5, 1.3, f"layer {layer.layer}", ha="center", transform=axes.transAxes, weight="bold")
    if maps.how == "grad_cam":
        note = f"{TITLES[maps.how]}; bright: speaks for the class"
    else:
        note = f"{TITLES[maps.how]}; red: for the class, blue: against"
    figure.supxlabel(note, fontsize=8, color=GRAY)
    return figure


def show_image(axes: "Axes", image: Tensor, faint: bool = False) -> None:
    """Draws an image [C, H, W] from 0 to 1."""
    picture = image.permute(1, 2, 0) if len(image) == 3 else image[0]
    height, width = image.shape[1:]
    if faint:
        # A gray image, so that the colors of the map are the only ones.
        picture = image.mean(0)
    axes.imshow(
        picture.numpy(),
        cmap="gray",
        vmin=0,
        vmax=1,
        extent=(0, width, height, 0),
        interpolation="nearest",
        alpha=0.45 if faint else 1,
    )
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color(GRAY)
        side.set_linewidth(0.6)


def _overlay(axes: "Axes", layer: LayerMaps, i: int, maps: ActivationMaps) -> None:
    """Draws a map over the image, without the constant, which says nothing about places."""
    values = layer.positions[i].float()
    if layer.constant is not None:
        values = values - layer.constant[i] / values.numel()
    height, width = maps.images.shape[2:]
    signed = maps.how != "grad_cam"
    top = max(float(values.abs().max()), 1e-12)
    axes.imshow(
        values.numpy(),
        cmap=SIGNED if signed else POSITIVE,
        vmin=-top if signed else 0,
        vmax=top,
        extent=(0, width, height, 0),
        interpolation="nearest" if values.shape[0] >= height else "bilinear",
        alpha=_opacity(values, top),
    )


def _opacity(values: Tensor, top: float) -> "npt.NDArray[Any]":
    opacity = 0.15 + 0.75 * (values.abs() / top)
    return opacity.clamp(0, 0.9).numpy()


def _title(axes: "Axes", text: str, right: bool | None) -> None:
    """The title of a picture, marked by a color and a sign, because not everybody sees the color."""
    sign, color = {None: ("", INK), True: (" ✓", RIGHT), False: (" ✗", WRONG)}[right]
    axes.set_title(_short(text) + sign, fontsize=8.5, color=color, pad=3)


def _short(text: str, length: int = 18) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


@style()
def draw_embedding(embedding: Embedding) -> "Figure":
    """A row for each epoch and a panel for each layer: features as dots, prototypes as stars."""
    epochs = list(dict.fromkeys(each.epoch for each in embedding.layers))
    layers = sorted({each.layer for each in embedding.layers})
    figure = new_figure(2.9 * len(layers) + 0.4, 2.75 * len(epochs) + 0.75)
    grid = figure.subplots(len(epochs), len(layers), squeeze=False)
    classes = _classes(embedding)
    palette = dict(zip(classes, colors(len(classes)), strict=True))
    for line, epoch in zip(grid, epochs, strict=True):
        for axes, layer in zip(line, layers, strict=True):
            (one,) = (each for each in embedding.layers if (each.layer, each.epoch) == (layer, epoch))
            _scatter(axes, one, embedding, palette)
            when = "" if epoch is None and len(epochs) == 1 else f", {_when(epoch)}"
            axes.set_title(f"layer {layer}{when}")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 2 + 3 * len(layers)),
                  markerscale=2, columnspacing=1, handletextpad=0.2)  # fmt: skip
    stars = "" if embedding.layers[0].prototypes is None else "; stars are prototypes"
    hidden = len(embedding.names) - len(classes)
    more = f"; the {len(classes)} most frequent of {len(embedding.names)} classes" if hidden else ""
    figure.supxlabel(
        f"{PROJECTIONS[embedding.projection]} of the features of {len(embedding.labels)} "
        f"{_split(embedding.split)} examples (no units){stars}{more}",
        fontsize=8,
        color=GRAY,
    )
    return figure


def _split(name: str) -> str:
    return {"train": "training", "all": ""}.get(name, name)


def _when(epoch: float | None) -> str:
    return "end of training" if epoch is None else f"epoch {epoch:g}"


def _classes(embedding: Embedding) -> Sequence[int]:
    counts = torch.bincount(embedding.labels, minlength=len(embedding.names))
    if len(counts) <= MOST_CLASSES:
        return range(len(counts))
    return counts.argsort(descending=True, stable=True)[:MOST_CLASSES].sort().values.tolist()


def _scatter(axes: "Axes", one: LayerEmbedding, embedding: Embedding, palette: dict[int, str]) -> None:
    for label, color in palette.items():
        points = one.points[embedding.labels == label].numpy()
        axes.scatter(points[:, 0], points[:, 1], s=5, color=color, alpha=0.6, linewidths=0,
                     label=embedding.names[label], rasterized=True)  # fmt: skip
    if one.prototypes is not None:
        for label, color in palette.items():
            places = one.prototypes[label].numpy()
            axes.scatter(places[:, 0], places[:, 1], s=120, marker="*", color=color, edgecolors=INK,
                         linewidths=0.9, zorder=3)  # fmt: skip
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color(GRAY)
        side.set_linewidth(0.6)
