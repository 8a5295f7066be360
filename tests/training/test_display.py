import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from hff.data import DataSet
from hff.methods import Stage, create_method
from hff.networks import create_network
from hff.training import Listener, Settings, TrainingProgress, fit
from hff.training.display import LineDisplay, LiveDisplay, display, duration, line, rows

RECORD: dict[str, Any] = {
    "stage": "joint",
    "epoch": 3,
    "epochs": 15,
    "loss": {"block0": 0.3111, "block1": 0.22},
    "validation_accuracy": {"0": 0.961, "1": 0.97},
    "learning_rate": 0.001,
    "seconds": 3.0,
}


def progress(stages: int = 1) -> TrainingProgress:
    stage = Stage("layer 1", (1,), 5)
    return TrainingProgress(stage, 1, stages, 2, 50, 100, {"block1": 0.5}, 30.0)


def test_an_epoch_is_one_line() -> None:
    assert line(RECORD) == "epoch 3/15  loss 0.311 0.220  accuracy 96.10 97.00  12 s left"


def test_the_last_line_has_no_time_left_and_without_validation_there_is_no_accuracy() -> None:
    assert line({**RECORD, "epoch": 15, "validation_accuracy": {}}) == "epoch 15/15  loss 0.311 0.220"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, ""), (12.4, "12 s left"), (300, "5 min left"), (3600 * 5 + 120, "5 h 02 min left")],
)
def test_duration(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_rows_join_losses_and_accuracies_by_layer_in_order() -> None:
    losses = {f"block{layer}": 1.0 for layer in range(11)} | {"head": 0.5}
    names = [name for name, _, _ in rows(losses, {"10": 0.5})]
    assert names == [*map(str, range(11)), "head"]
    assert list(rows({"network": 0.25}, {"2": 0.5})) == [("2", "", "50.00 %"), ("network", "0.2500", "")]


def test_a_stream_that_is_not_a_terminal_gets_lines() -> None:
    stream = io.StringIO()
    with display("runs/x", stream=stream) as listener:
        assert isinstance(listener, LineDisplay)
        listener.started(1, 1234, "joint, epoch 2, step 0")
        listener.stepped(progress())
        listener.epoch_ended(RECORD)
    first, second = stream.getvalue().splitlines()
    assert first == "runs/x: 1 layer, 1,234 parameters, resumed at joint, epoch 2, step 0"
    assert second.startswith("epoch 3/15")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_batch_size_that_was_chosen_is_shown_with_the_data(terminal: bool, digits: DataSet) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    with display("runs/x", stream=stream) as listener:
        listener.batch_size_chosen(32)
        listener.data_loaded(digits, ["Beware."])
    warning, chosen = stream.getvalue().rstrip().splitlines()[-2:]
    assert warning == "Warning: Beware."
    expected = f"The batch size for {len(digits.train):,} examples is 32 (--batch-size sets another)."
    assert chosen == expected


def test_quiet_prints_nothing() -> None:
    stream = io.StringIO()
    with display("runs/x", quiet=True, stream=stream) as listener:
        assert type(listener) is Listener
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_live_table() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with display("runs/x", stream=stream) as listener:
        assert isinstance(listener, LiveDisplay)
        listener.started(2, 10, None)
        listener.epoch_ended(RECORD)
    shown = stream.getvalue()
    assert "runs/x: 2 layers" in shown
    assert "96.10 %" in shown


def test_the_live_table_follows_steps_and_epochs() -> None:
    console = Console(file=io.StringIO(), width=100)
    live = LiveDisplay("x", console)

    def screen() -> str:
        with console.capture() as capture:
            console.print(live.render())
        return capture.get()

    assert "epoch" not in screen()
    live.stepped(progress(stages=2))
    assert "layer 1 (2/2)  epoch 8/10" in screen()
    assert "30 s left" in screen()
    live.epoch_ended(RECORD)
    assert "epoch 3/15" in screen()
    live.stepped(progress())
    shown = screen()
    assert "epoch 4/15" in shown
    assert "0.3111" in shown, "the loss of a frozen layer stays"
    assert "0.5000" in shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_fit_shows_progress_on_a_terminal_and_in_a_notebook_and_nothing_elsewhere(
    digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed(stream: io.StringIO) -> str:
        method = create_method("hff", create_network("mlp", digits.in_shape, 10, widths=(8,)), 10)
        monkeypatch.setattr("sys.stdout", stream)
        fit(method, digits, Settings(epochs=2, batch_size=512))
        monkeypatch.undo()
        return stream.getvalue()

    assert printed(io.StringIO()) == ""
    on_terminal = printed(Terminal())
    assert "digits: 1,797 images" in on_terminal
    assert "epoch 2/2" in on_terminal
    assert "validation accuracy" in on_terminal
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    lines = printed(io.StringIO()).splitlines()
    assert [text.split("  ")[0] for text in lines[-2:]] == ["epoch 1/2", "epoch 2/2"]
