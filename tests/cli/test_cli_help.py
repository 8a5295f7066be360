"""The help of every verb."""

import pytest

from hff.cli import main
from hff.cli.command import VERBS
from hff.methods import methods
from hff.networks import networks

SELECTIONS = [
    *(["train", "--method", name] for name in sorted(methods)),
    *(["train", "--network", name] for name in sorted(networks)),
    *([verb, "--data", "folder"] for verb in ("train", "compare")),
]


@pytest.mark.parametrize("argv", [*([verb] for verb in VERBS), *SELECTIONS], ids=" ".join)
def test_help_fits_80_columns(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*argv, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 80] == []


def test_a_long_list_of_values_is_part_of_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--network.activation NAME activation function of every layer: relu, leaky_relu, gelu" in shown
    assert "triangle, identity (relu)" in shown


def test_train_help_shows_the_options_of_the_selected_parts_with_the_recipe_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["train", "paper_mnist_cnn", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--method.temperature X tau in the scores" in shown
    assert "--network.channels N,N output channels" in shown
    assert "(32,64)" in shown
    assert "(150)" in shown
    assert "--network.widths" not in shown
    main(["train", "--method", "backprop", "--help"])
    shown = capsys.readouterr().out
    assert "--method.head flatten|pool" in shown
    assert "--method.temperature" not in shown
    assert "mini-batch (64)" in " ".join(shown.split())
