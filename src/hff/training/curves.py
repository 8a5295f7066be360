"""The picture of a training: accuracy and loss of every layer over the epochs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.errors import UserError
from hff.training.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = "curves.png"


def draw_curves(run: Run) -> Path:
    """Draws the metrics of a run into its folder. Returns the path of the image."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("The curves need matplotlib; install it with: pip install matplotlib") from None
    records = run.metrics()
    if not records:
        raise UserError(f"{run.folder} has no metrics yet, so there are no curves.")
    accuracy, loss = accuracy_curves(records), _curves(records, "loss")
    panels = {
        name: curves for name, curves in (("validation accuracy (%)", accuracy), ("loss", loss)) if curves
    }
    figure = Figure(figsize=(5.2 * len(panels), 3.6), dpi=120, layout="constrained")
    for axes, (title, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        factor = 100 if curves is accuracy else 1
        for name, points in curves.items():
            epochs, values = zip(*points, strict=True)
            axes.plot(
                epochs,
                [factor * value for value in values],
                label=name,
                marker="." if len(points) < 30 else None,
            )
        axes.set_xlabel("epoch")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if len(curves) <= 12:
            axes.legend(frameon=False, fontsize=8)
    return save_figure(figure, run.folder / CURVES)


def save_figure(figure: "Figure", path: Path) -> Path:
    """Writes a figure to a file, completely or not at all; returns the path."""
    partial = path.with_name(f"partial-{path.name}")
    try:
        figure.savefig(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def accuracy_curves(records: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
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


def _curves(records: list[dict[str, Any]], quantity: str) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        for name, value in record[quantity].items():
            if value is not None:
                curves.setdefault(name, []).append((record["epoch"], value))
    return curves
