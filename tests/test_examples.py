"""Every example runs, and learns what it claims to learn."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from hff.methods import methods
from hff.networks import networks

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *argv: str) -> Any:
    """What the `main` of an example returns."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", [name, *argv])
    spec.loader.exec_module(module)
    return module.main()


def test_every_example_is_tested() -> None:
    tested = {"plain_loop", "prototypes_in_your_model", "own_method", "own_network", "own_data", "early_look"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


def test_a_plain_loop_trains_hff(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("plain_loop", monkeypatch, "--epochs", "5") > 0.9
    assert len((EXAMPLES / "plain_loop.py").read_text().splitlines()) < 50


def test_prototypes_work_in_a_model_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("prototypes_in_your_model", monkeypatch) > 0.85


def test_a_method_of_ones_own_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        assert run("own_method", monkeypatch) > 0.9
    finally:
        del methods["least_squares"]


def test_a_network_of_ones_own_is_trained_by_three_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        accuracy = run("own_network", monkeypatch)
    finally:
        del networks["gated"]
    assert set(accuracy) == {"hff", "mono_forward", "backprop"}
    assert min(accuracy.values()) > 0.85


def test_arrays_of_ones_own_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("own_data", monkeypatch) > 0.9


def test_stopping_early_saves_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy, depth = run("early_look", monkeypatch)
    assert accuracy > 0.9
    assert depth < 2
