"""What a training shows: a live table on a terminal, one line an epoch anywhere else, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from hff.training import Listener, TrainingProgress

if TYPE_CHECKING:
    from rich.console import Console, Group


READ_OUT = "read-out"


@contextmanager
def display(title: str, *, quiet: bool = False, stream: TextIO | None = None) -> Iterator[Listener]:
    """The listener that suits the stream (standard output if not given)."""
    stream = stream or sys.stdout
    if quiet:
        yield Listener()
    elif stream.isatty():
        from rich.console import Console

        with LiveDisplay(title, Console(file=stream)) as live:
            yield live
    else:
        yield LineDisplay(title, stream)


class LineDisplay(Listener):
    """One line for each epoch, for files and pipes."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self.title = title
        self.stream = stream

    def started(self, layers: int, parameters: int, resumed_at: str | None) -> None:
        self._write(title_line(self.title, layers, parameters, resumed_at))

    def epoch_ended(self, record: dict[str, Any]) -> None:
        self._write(line(record))

    def _write(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()


class LiveDisplay(Listener):
    """A progress bar and a table of the layers that are redrawn in place."""

    def __init__(self, title: str, console: Console) -> None:
        from rich.live import Live

        self.title = title
        self.console = console
        self.progress: TrainingProgress | None = None
        self.record: dict[str, Any] = {}
        self.losses: dict[str, float] = {}
        """Replaced, never changed, for another thread draws them; they keep what layers at rest had last."""
        self.live = Live(console=console, get_renderable=self.render, refresh_per_second=8, transient=True)

    def __enter__(self) -> LiveDisplay:
        return self

    def __exit__(self, *exception: object) -> None:
        self.live.stop()

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
        """What is on the screen now."""
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
        """What is done and the whole, in the same unit; where the training is; and the time left."""
        now, record = self.progress, self.record
        if now is None and not record:
            return 0, 1, "", ""
        if now is None:
            return share_done(record), 1, position(record), duration(seconds_left(record))
        stage = f"{now.stage.name} ({now.stage_number + 1}/{now.stages})  " if now.stages > 1 else ""
        if now.share is not None:
            return now.share, 1, f"{stage}{100 * now.share:.0f} %", duration(now.seconds_left)
        # Before the first record of a resumed run, stages of equal length are the best guess.
        epoch = record.get("epoch", now.stage_number * now.stage.epochs + now.epoch)
        epochs = record.get("epochs", now.stages * now.stage.epochs)
        where = f"{stage}epoch {epoch + 1}/{epochs}"
        return epoch + now.step / now.steps, epochs, where, duration(now.seconds_left)


class BarDisplay(LiveDisplay):
    """One line that is redrawn in place, for one training of many."""

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


def title_line(title: str, layers: int, parameters: int, resumed_at: str | None) -> str:
    """The first line: what is trained, and how large it is."""
    resumed = f", resumed at {resumed_at}" if resumed_at else ""
    plural = "" if layers == 1 else "s"
    return f"{title}: {layers} layer{plural}, {parameters:,} parameters{resumed}"


def line(record: dict[str, Any]) -> str:
    """An epoch's metrics in one line."""
    losses = " ".join(f"{loss:.3f}" for loss in record["loss"].values())
    layers = " ".join(as_percent(share) for share in record["validation_accuracy"].values())
    parts = [position(record), f"loss {losses}"]
    parts += [f"accuracy {layers}"] if layers else []
    parts += [
        f"read-out {as_percent(share)}" for name, share in accuracies(record).items() if name == READ_OUT
    ]
    left = seconds_left(record)
    return "  ".join([*parts, duration(left)] if left else parts)


def accuracies(record: dict[str, Any]) -> dict[str, Any]:
    """The validation accuracy of each layer, and of the read-out where it is not just the last layer's."""
    layers: dict[str, Any] = record.get("validation_accuracy") or {}
    read_out = record.get("read_out_accuracy")
    if not layers or read_out in (None, list(layers.values())[-1]):
        return layers
    return {**layers, READ_OUT: read_out}


def rows(losses: dict[str, float], accuracy: dict[str, float]) -> Iterator[tuple[str, str, str]]:
    """(layer, loss, validation accuracy) in words; a group that is no single layer has a row of its own."""
    by_name = {group.removeprefix("block"): loss for group, loss in losses.items()}
    for name in sorted({**by_name, **accuracy}, key=lambda name: (not name.isdigit(), name.zfill(4))):
        loss = f"{by_name[name]:.4f}" if name in by_name else ""
        yield name, loss, f"{as_percent(accuracy[name])} %" if name in accuracy else ""


def as_percent(share: float) -> str:
    """A share as a number of percent, without the sign."""
    return f"{100 * share:.2f}"


def position(record: dict[str, Any]) -> str:
    """Which epoch a record belongs to, and of how many where that is known."""
    return f"epoch {record['epoch']}" + (f"/{record['epochs']}" if record["epochs"] else "")


def share_done(record: dict[str, Any]) -> float:
    """How much of the training is done at a record: of the epochs, or of the time where that is given."""
    share: float = record["epoch"] / record["epochs"] if record["epochs"] else record["share"]
    return share


def seconds_left(record: dict[str, Any]) -> float:
    """How long the rest takes if it goes on at the pace so far."""
    left: float = record["seconds"] * (1 / share_done(record) - 1)
    return left


def duration(seconds: float | None) -> str:
    """Time left, in the largest units that matter."""
    return "" if seconds is None else f"{in_words(seconds)} left"


def in_words(seconds: float) -> str:
    """A span of time, in the largest units that matter."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
