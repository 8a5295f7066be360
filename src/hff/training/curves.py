"""The picture of a training: accuracy and loss of every layer over the epochs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.errors import UserError
from hff.methods.method import group_layer
from hff.plotting import INK, finish, layer_colors, legend, new_figure, save_figure, style, whole_numbers
from hff.training.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = "curves.png"
MOST_NAMED = 16
"""With more layers, the legend names some of them only."""
Points = list[tuple[float, float]]


def draw_curves(run: Run) -> Path:
    """Draws the metrics of a run into its folder. Returns the path of the image."""
    return save_figure(curves_figure([(run.folder.name, run)], titled=False), run.folder / CURVES)


@style("The curves")
def curves_figure(runs: Sequence[tuple[str, Run]], *, titled: bool = True) -> "Figure":
    """Accuracy and loss of every layer over the epochs: a row for each (name, run).

    Args:
        runs: the runs with their names.
        titled: whether the panels are titled with the names.
    """
    found = [(name, run.metrics()) for name, run in runs]
    for (_, run), (_, records) in zip(runs, found, strict=True):
        if not records:
            raise UserError(f"{run.folder} has no metrics yet, so there are no curves.")
    panels = [(name, accuracy_curves(records), loss_curves(records)) for name, records in found]
    columns = max(1, max(bool(accuracy) + bool(loss) for _, accuracy, loss in panels))
    figure = new_figure(4.7 * columns + 0.4, 2.9 * len(panels))
    grid = figure.subplots(len(panels), columns, squeeze=False)
    for line, (name, accuracy, loss) in zip(grid, panels, strict=True):
        parts = [("validation accuracy (%)", accuracy, 100.0), ("loss", loss, 1.0)]
        shown = [part for part in parts if part[1]]
        for axes, (title, curves, factor) in zip(line, shown, strict=False):
            _draw(axes, curves, factor)
            finish(axes, x="epoch", y=title, title=name if titled else None)
            whole_numbers(axes)
            legend(axes)
        for axes in line[len(shown) :]:
            axes.set_axis_off()
    return figure


def _draw(axes: "Axes", curves: dict[str, Points], factor: float) -> None:
    layers = [name for name in curves if name != "read-out"]
    palette = dict(zip(layers, layer_colors(len(layers)), strict=True))
    # Of many layers, about a dozen are named, among them the first and the last one.
    step = -(-len(layers) // 12) if len(layers) > MOST_NAMED else 1
    for number, (name, points) in enumerate(curves.items()):
        epochs, values = zip(*points, strict=True)
        named = number % step == 0 or name in ("read-out", layers[-1])
        axes.plot(
            epochs,
            [factor * value for value in values],
            label=name if named else None,
            marker="." if len(points) < 30 else None,
            color=palette.get(name, INK),
            linestyle="-" if name in palette else "--",
        )


def accuracy_curves(records: list[dict[str, Any]]) -> dict[str, Points]:
    """The validation accuracy of each layer as points (epoch, accuracy), and that of the read-out.

    A read-out that is just one of the layers has no curve of its own.
    """
    curves = {f"layer {layer}": points for layer, points in _curves(records, "validation_accuracy").items()}
    read_out = [
        (record["epoch"], record["read_out_accuracy"])
        for record in records
        if record.get("read_out_accuracy") is not None
    ]
    return {**curves, "read-out": read_out} if read_out and read_out not in curves.values() else curves


def loss_curves(records: list[dict[str, Any]]) -> dict[str, Points]:
    """The training loss of each group of parameters, usually a layer, as points (epoch, loss)."""
    curves = _curves(records, "loss")
    return {_group(name): each for name, each in curves.items()}


def _group(name: str) -> str:
    layer = group_layer(name)
    return name if layer is None else f"layer {layer}"


def _curves(records: list[dict[str, Any]], quantity: str) -> dict[str, Points]:
    curves: dict[str, Points] = {}
    for record in records:
        for name, value in record[quantity].items():
            if value is not None:
                curves.setdefault(name, []).append((record["epoch"], value))
    return curves
