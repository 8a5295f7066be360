"""Displays of a training: a live table on a terminal, one line per epoch elsewhere, nothing if quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from hff.formatting import in_words, number, percent
from hff.training.listener import Listener, TrainingProgress

if TYPE_CHECKING:
    from rich.console import Console, Group

    from hff.data import DataSet

READ_OUT = "read-out"


@contextmanager
def display(title: str, *, quiet: bool = False, stream: TextIO | None = None) -> Iterator[Listener]:
    """The listener for a stream, which is standard output if not given."""
    stream = stream or sys.stdout
    if quiet:
        yield Listener()
    elif stream.isatty():
        from rich.console import Console

        with LiveDisplay(title, Console(file=stream)) as live:
            yield live
    else:
        yield LineDisplay(title, stream)


@contextmanager
def default_display(title: str) -> Iterator[Listener]:
    """The display of a training that is started from Python.

    A terminal shows the progress live and keeps the last state. A notebook gets a line per epoch. Anything
    else, such as a file, gets nothing.
    """
    if _in_notebook():
        yield LineDisplay(title, sys.stdout)
    elif sys.stdout.isatty():
        from rich.console import Console

        with LiveDisplay(title, Console(), keep=True) as live:
            yield live
    else:
        yield Listener()


def _in_notebook() -> bool:
    """Whether the program runs in the kernel of a notebook."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class LineDisplay(Listener):
    """Prints one line per epoch, for files and pipes."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self.title = title
        self.stream = stream
        self.batch_size: int | None = None

    def batch_size_chosen(self, batch_size: int) -> None:
        self.batch_size = batch_size

    def data_loaded(self, data: DataSet, warnings: Sequence[str]) -> None:
        self._write(described(data, warnings, self.batch_size) + "\n")

    def started(self, layers: int, parameters: int, resumed_at: str | None) -> None:
        self._write(title_line(self.title, layers, parameters, resumed_at))

    def epoch_ended(self, record: dict[str, Any]) -> None:
        self._write(line(record))

    def _write(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()


class LiveDisplay(Listener):
    """A progress bar and a table of the layers, redrawn in place.

    Args:
        title: what is trained.
        console: the terminal.
        keep: whether the last state stays on the screen.
    """

    def __init__(self, title: str, console: Console, keep: bool = False) -> None:
        from rich.live import Live

        self.title = title
        self.console = console
        self.batch_size: int | None = None
        self.progress: TrainingProgress | None = None
        self.record: dict[str, Any] = {}
        self.losses: dict[str, float] = {}
        """The last loss of each group, also of frozen layers. It is replaced and never modified, because
        another thread draws it."""
        self.live = Live(
            console=console, get_renderable=self.render, refresh_per_second=8, transient=not keep
        )

    def __enter__(self) -> LiveDisplay:
        return self

    def __exit__(self, *exception: object) -> None:
        self.live.stop()

    def batch_size_chosen(self, batch_size: int) -> None:
        self.batch_size = batch_size

    def data_loaded(self, data: DataSet, warnings: Sequence[str]) -> None:
        text = described(data, warnings, self.batch_size)
        self.console.print(text + "\n", highlight=False, markup=False, soft_wrap=True)

    def started(self, layers: int, parameters: int, resumed_at: str | None) -> None:
        self.console.print(title_line(self.title, layers, parameters, resumed_at), highlight=False)
        self.live.start()

    def stepped(self, progress: TrainingProgress) -> None:
        self.progress = progress
        self.losses = {**self.losses, **progress.losses}

    def epoch_ended(self, record: dict[str, Any]) -> None:
        self.record = record
        self.losses = {**self.losses, **record["loss"]}
        self.progress = None

    def render(self) -> Group:
        """The current content of the screen."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        done, total, where, left = self._position()
        bar = Table.grid(padding=(0, 2))
        bar.add_row(where, ProgressBar(total=total, completed=done, width=30), left)
        table = Table("layer", "loss", "validation accuracy", box=None, padding=(0, 2))
        for name, loss, share in rows(self.losses, accuracies(self.record)):
            table.add_row(name, loss, share)
        return Group(bar, table)

    def _position(self) -> tuple[float, float, str, str]:
        """Completed and total amount of work, the position in words, and the time left."""
        now, record = self.progress, self.record
        if now is None and not record:
            return 0, 1, "", ""
        if now is None:
            return share_done(record), 1, position(record), duration(seconds_left(record))
        stage = f"{now.stage.name} ({now.stage_number + 1}/{now.stages})  " if now.stages > 1 else ""
        if now.share is not None:
            return now.share, 1, f"{stage}{100 * now.share:.0f} %", duration(now.seconds_left)
        # A resumed run has no record yet: assume stages of equal length.
        epoch = record.get("epoch", now.stage_number * now.stage.epochs + now.epoch)
        epochs = record.get("epochs", now.stages * now.stage.epochs)
        where = f"{stage}epoch {epoch + 1}/{epochs}"
        return epoch + now.step / now.steps, epochs, where, duration(now.seconds_left)


class BarDisplay(LiveDisplay):
    """A single line redrawn in place, for one of several trainings."""

    def data_loaded(self, data: DataSet, warnings: Sequence[str]) -> None:
        """Nothing is shown: all trainings have the same data."""

    def started(self, layers: int, parameters: int, resumed_at: str | None) -> None:
        self.live.start()

    def render(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        done, total, where, left = self._position()
        bar = Table.grid(padding=(0, 2))
        bar.add_row(self.title, ProgressBar(total=total, completed=done, width=30), where, left)
        return Group(bar)


def described(data: DataSet, warnings: Sequence[str], batch_size: int | None) -> str:
    """The data before a training, and the batch size if it was chosen for the data."""
    text = data.describe(warnings)
    if batch_size is None:
        return text
    chosen = f"The batch size for {len(data.train):,} examples is {batch_size}"
    return f"{text}\n{chosen} (--batch-size sets another)."


def title_line(title: str, layers: int, parameters: int, resumed_at: str | None) -> str:
    """The first line of output: the title and the size of the network."""
    resumed = f", resumed at {resumed_at}" if resumed_at else ""
    plural = "" if layers == 1 else "s"
    return f"{title}: {layers} layer{plural}, {parameters:,} parameters{resumed}"


def line(record: dict[str, Any]) -> str:
    """The metrics of an epoch in one line."""
    losses = " ".join(f"{loss:.3f}" for loss in record["loss"].values())
    layers = " ".join(number(share, 100) for share in record["validation_accuracy"].values())
    parts = [position(record), f"loss {losses}"]
    parts += [f"accuracy {layers}"] if layers else []
    parts += [
        f"read-out {number(share, 100)}" for name, share in accuracies(record).items() if name == READ_OUT
    ]
    left = seconds_left(record)
    return "  ".join([*parts, duration(left)] if left else parts)


def accuracies(record: dict[str, Any]) -> dict[str, Any]:
    """The validation accuracy of each layer, and of the read-out if it differs from the last layer."""
    layers: dict[str, Any] = record.get("validation_accuracy") or {}
    read_out = record.get("read_out_accuracy")
    if not layers or read_out in (None, list(layers.values())[-1]):
        return layers
    return {**layers, READ_OUT: read_out}


def rows(losses: dict[str, float], accuracy: dict[str, float]) -> Iterator[tuple[str, str, str]]:
    """The rows of the table: (layer or group, loss, validation accuracy)."""
    by_name = {group.removeprefix("block"): loss for group, loss in losses.items()}
    for name in sorted({**by_name, **accuracy}, key=lambda name: (not name.isdigit(), name.zfill(4))):
        loss = f"{by_name[name]:.4f}" if name in by_name else ""
        yield name, loss, percent(accuracy[name]) if name in accuracy else ""


def position(record: dict[str, Any]) -> str:
    """The epoch of a record, and the number of epochs if it is known."""
    return f"epoch {record['epoch']}" + (f"/{record['epochs']}" if record["epochs"] else "")


def share_done(record: dict[str, Any]) -> float:
    """The share of the training that is done at a record: of the epochs, or of the time budget."""
    share: float = record["epoch"] / record["epochs"] if record["epochs"] else record["share"]
    return share


def seconds_left(record: dict[str, Any]) -> float:
    """The time left at the average speed so far."""
    left: float = record["seconds"] * (1 / share_done(record) - 1)
    return left


def duration(seconds: float | None) -> str:
    """The time left in words."""
    return "" if seconds is None else f"{in_words(seconds)} left"
