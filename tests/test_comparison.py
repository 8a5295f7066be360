"""Comparisons: equal terms, nothing trained or tested twice, ranked on validation."""

import builtins
import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hff.bench.estimate import Cost, estimate
from hff.comparison import Comparison, ComparisonListener, ComparisonSettings, Estimate, MethodResult
from hff.comparison.compare import FIGURE, TERMS
from hff.comparison.entrants import default_networks, find_entrants
from hff.comparison.figure import draw
from hff.comparison.results import as_csv, as_markdown, cells, ranked
from hff.errors import UserError
from hff.experiment import PARTS, Experiment, Selection
from hff.methods import methods
from hff.methods.mono_forward import MonoForward
from hff.paper import claimed
from hff.training import Listener, Run

DIGITS = Experiment.from_mapping({"data": {"name": "digits", "limit": 200}}).data
MLP = Selection("mlp", {"widths": (16, 12)})
SETTINGS_OF_TESTS = ComparisonSettings(DIGITS, MLP, epochs=2, batch_size=64)
NAMES = ["backprop", "mono_forward", "sff"]
MEMORY = 12_300_000


@pytest.fixture(autouse=True)
def known_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh processes take their time, and are tested elsewhere."""
    monkeypatch.setattr("hff.comparison.compare.peak_memory", lambda *_: MEMORY)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Which methods were trained, and which were measured on which split."""
    counts: dict[str, list[str]] = {"train": [], "resume": [], "evaluate_run": []}
    compare = "hff.comparison.compare."

    def counting(name: str, real: Any) -> Any:
        def count(first: Any, *arguments: Any, **options: Any) -> Any:
            counts[name].append(first.method.name if name == "train" else first.folder.name)
            return real(first, *arguments, **options)

        return count

    import hff.experiment

    for name in counts:
        monkeypatch.setattr(compare + name, counting(name, getattr(hff.experiment, name)))
    return counts


def row(method: str = "hff", validation: float | None = 90.0, **facts: Any) -> MethodResult:
    known: dict[str, Any] = {
        "title": method.upper(),
        "network": "mlp 16-12",
        "test_accuracy": 89.5,
        "claimed": None,
        "training_seconds": 60.0,
        "epochs": 4.5,
        "seconds_per_epoch": 13.3333,
        "peak_memory_mb": 40.0,
        "passes": 1,
        "seconds_per_10000_predictions": 0.25,
        "parameters": 1000,
        "learning_rate": 1e-3,
        "failure": None,
    }
    return MethodResult(method=method, validation_accuracy=validation, **{**known, **facts})


def test_a_comparison_is_complete_ranked_and_made_of_ordinary_runs(
    tmp_path: Path, counted: dict[str, list[str]]
) -> None:
    rows = Comparison(tmp_path, SETTINGS_OF_TESTS, NAMES).run()
    assert sorted(row.method for row in rows) == NAMES
    accuracies = [row.validation_accuracy or 0 for row in rows]
    assert accuracies == sorted(accuracies, reverse=True)
    for each in rows:
        run = Run.open(tmp_path / each.method)
        summary, tested = run.summary() or {}, run.read_json("eval-test.json")
        assert each.validation_accuracy == round(100 * summary["read_out_accuracy"], 2)
        assert each.test_accuracy == round(100 * tested["accuracy"], 2)
        assert run.config["lr_schedule"] == "cosine"
        assert (each.epochs, each.passes, each.network) == (2, 1, "mlp 16-12")
        assert each.peak_memory_mb == MEMORY / 1e6
        assert each.training_seconds == pytest.approx(2 * (each.seconds_per_epoch or 0), abs=0.01)
        assert each.seconds_per_10000_predictions is not None
    with (tmp_path / "comparison.csv").open(newline="") as file:
        assert [(r["rank"], r["method"]) for r in csv.DictReader(file)] == [
            (str(rank), row.method) for rank, row in enumerate(rows, 1)
        ]
    assert counted == {"train": NAMES, "resume": [], "evaluate_run": NAMES}

    again = Comparison.open(tmp_path).run()
    assert again == rows
    assert counted == {"train": NAMES, "resume": [], "evaluate_run": NAMES}


def test_what_was_stopped_goes_on_and_the_test_split_waits_for_all(
    tmp_path: Path, counted: dict[str, list[str]]
) -> None:
    class Stop(Listener):
        def epoch_ended(self, record: dict[str, Any]) -> None:
            if record["epoch"] == 1:
                raise KeyboardInterrupt

    class StopAtTheSecond(ComparisonListener):
        def listener(self, method: str, number: int) -> Listener:
            return Stop() if number == 2 else Listener()

    with pytest.raises(KeyboardInterrupt):
        Comparison(tmp_path, SETTINGS_OF_TESTS, NAMES).run(StopAtTheSecond())
    assert counted == {"train": NAMES[:2], "resume": [], "evaluate_run": []}
    assert Run.open(tmp_path / NAMES[1]).position().epoch == 1

    rows = Comparison(tmp_path, SETTINGS_OF_TESTS, NAMES).run()
    assert counted == {"train": NAMES, "resume": [NAMES[1]], "evaluate_run": NAMES}
    assert [each.epochs for each in rows] == [2, 2, 2]
    assert len(Run.open(tmp_path / NAMES[1]).metrics()) == 2


def test_methods_can_join_later(tmp_path: Path, counted: dict[str, list[str]]) -> None:
    Comparison(tmp_path, SETTINGS_OF_TESTS, NAMES[:1]).run()
    rows = Comparison(tmp_path, SETTINGS_OF_TESTS, NAMES[:2]).run()
    assert len(rows) == 2
    assert counted == {"train": NAMES[:2], "resume": [], "evaluate_run": NAMES[:2]}


def test_one_that_fails_is_reported_and_not_tried_again(
    tmp_path: Path, counted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*_: Any) -> Any:
        raise UserError("The loss of block0 is not finite any more; take a smaller learning rate.")

    monkeypatch.setattr(MonoForward, "observe_validation", diverge)
    first = Comparison(tmp_path, SETTINGS_OF_TESTS, NAMES).run()
    assert Comparison.open(tmp_path).run() == first
    assert [row.method for row in first][-1] == "mono_forward"
    assert "not finite" in (first[-1].failure or "")
    assert first[-1].test_accuracy is None
    assert counted == {"train": NAMES, "resume": [], "evaluate_run": ["backprop", "sff"]}
    assert "`mono_forward` failed: The loss" in (tmp_path / "comparison.md").read_text()


def test_each_method_has_its_own_rate_unless_all_shall_have_one() -> None:
    for name, method in methods.items():
        assert SETTINGS_OF_TESTS.experiment(name, MLP).training.learning_rate == method.info.learning_rate
    common = ComparisonSettings(DIGITS, MLP, epochs=2, learning_rate=0.02)
    assert common.experiment("hff", MLP).training.learning_rate == 0.02
    assert ComparisonSettings(DIGITS, seconds=7.0).experiment("hff", MLP).training.seconds == 7.0


def test_without_a_network_every_method_finds_one_and_with_one_the_others_say_why_not() -> None:
    found, unsupported = find_entrants(ComparisonSettings(DIGITS, seconds=5.0), methods, (1, 8, 8), 10)
    assert set(found) == set(methods)
    assert not unsupported
    assert found["hff"].network == "mlp 3x500"
    assert found["cwconv"].network == "cnn 30-60"
    found, unsupported = find_entrants(SETTINGS_OF_TESTS, methods, (1, 8, 8), 10)
    assert set(found) | set(unsupported) == set(methods)
    assert unsupported["cwconv"] == (
        "Channel-wise Competitive Learning trains conv layers only, but network 'mlp' has linear layers; "
        "choose another network."
    )


@pytest.mark.parametrize("classes", [2, 3, 10, 100, 1000])
def test_the_default_channels_are_multiples_of_the_classes(classes: int) -> None:
    channels = default_networks(classes)[1].options["channels"]
    assert all(width and width % classes == 0 for width in channels)


def test_other_terms_in_the_same_folder_are_refused_in_one_sentence(tmp_path: Path) -> None:
    Comparison(tmp_path, SETTINGS_OF_TESTS, NAMES[:1]).run()
    wider = Selection("mlp", {"widths": (16, 13)})
    for other, words in (
        (replace(SETTINGS_OF_TESTS, epochs=3), "epochs 2, not 3"),
        (replace(SETTINGS_OF_TESTS, network=wider), "network.widths 16,12, not 16,13"),
        (replace(SETTINGS_OF_TESTS, network=None), "network mlp, not none"),
    ):
        with pytest.raises(UserError, match=f"holds a comparison with {words}; choose another folder"):
            Comparison(tmp_path, other, NAMES[:1])


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Unknown method 'bakprop'; did you mean 'backprop'"):
        Comparison(tmp_path, SETTINGS_OF_TESTS, ["bakprop"])
    with pytest.raises(UserError, match="no method to compare"):
        Comparison(tmp_path, SETTINGS_OF_TESTS, [])
    with pytest.raises(UserError, match="holds no comparison"):
        Comparison.open(tmp_path)
    with pytest.raises(UserError, match="either seconds or epochs"):
        ComparisonSettings(DIGITS, seconds=3.0, epochs=4)
    blind = Selection("digits", {**DIGITS.options, "validation": 0})
    with pytest.raises(UserError, match=r"set data\.validation above 0"):
        Comparison(tmp_path, ComparisonSettings(blind, epochs=1))
    vgg = Selection("vgg11", {field.name: field.default for field in PARTS["network"].fields("vgg11")})
    with pytest.raises(UserError, match="needs images of 32x32"):
        Comparison(tmp_path, ComparisonSettings(DIGITS, vgg, epochs=1), ["hff"])
    (tmp_path / TERMS).write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        Comparison(tmp_path, SETTINGS_OF_TESTS)
    assert [path.name for path in tmp_path.iterdir()] == [TERMS]


def test_terms_survive_being_written() -> None:
    for terms in (SETTINGS_OF_TESTS, ComparisonSettings(DIGITS, seconds=5.0)):
        again = ComparisonSettings.from_mapping(json.loads(json.dumps(terms.to_mapping())))
        assert again.difference(terms) is None


def test_estimates_are_those_of_the_plan() -> None:
    sizes = {"train": 640, "validation": 100, "test": 400}
    cost = Cost((0.5,), prediction_seconds=0.01)
    by_epochs = find_entrants(SETTINGS_OF_TESTS, ["hff"], (1, 8, 8), 10)[0]["hff"]
    # 2 epochs of 10 steps; 2 validations, 1 for the scales of the layers, and the test.
    assert estimate(by_epochs, cost, **sizes) == Estimate(10.0, 3.0 + 4.0)
    assert estimate(by_epochs, cost, **sizes, seen=640).training == 5.0
    by_time = find_entrants(
        ComparisonSettings(DIGITS, MLP, seconds=60.0, batch_size=64), ["hff"], (1, 8, 8), 10
    )[0]["hff"]
    # 12 epochs of 5 seconds and the end of the stage are validated.
    assert estimate(by_time, cost, **sizes) == Estimate(60.0, 14.0 + 4.0)
    assert estimate(by_time, cost, **sizes, spent=20.0).training == 40.0
    # Short epochs are not all validated.
    assert estimate(by_time, Cost((1e-3,), 0.01), **sizes).evaluation == pytest.approx(22.0 + 4.0)


def test_ranks_go_by_validation_alone() -> None:
    rows = [
        row("a", 80.0, test_accuracy=99.0),
        row("b", 91.0),
        row("d", None, failure="diverged"),
        row("c", 91.0, test_accuracy=95.0),
    ]
    assert [each.method for each in ranked(rows)] == ["b", "c", "a", "d"]


def test_tables_say_what_failed_and_what_is_left_out() -> None:
    rows = [row(claimed="89.96 ± 0.10"), row("ff", None, failure="It diverged.", test_accuracy=None)]
    assert cells(rows)[0][:6] == ["1", "hff", "mlp 16-12", "90.00", "89.50", "89.96 ± 0.10"]
    assert cells(rows)[0][6:] == ["60.0", "4.5", "13.3", "40", "1", "0.25"]
    assert cells(rows)[1][:5] == ["–", "ff", "mlp 16-12", "failed", "–"]
    page = as_markdown(rows, {"cwconv": "It needs convolutions."}, SETTINGS_OF_TESTS)
    assert page.startswith("# digits (limit 200), mlp: 2 epochs of training each, batches of 64, seed 0\n")
    assert "- `ff` failed: It diverged.\n- `cwconv` is left out: It needs convolutions." in page
    assert [line.split(",")[:2] for line in as_csv(rows).splitlines()[1:]] == [["1", "hff"], ["", "ff"]]


def test_claims_are_those_of_the_method_the_data_and_the_kind_of_network() -> None:
    claim = claimed("hff", "fashion_mnist", "mlp")
    assert claim is not None
    assert (claim.printed, row(claimed=claim.printed).claimed_value) == ("89.96 ± 0.10", 89.96)
    assert claimed("hff", "digits", "mlp") is None
    assert claimed("cwconv", "cifar10", "cwconv_cnn") == claimed("cwconv", "cifar10", "cnn") is not None


def test_the_figure_is_an_image_as_tall_as_its_rows(tmp_path: Path) -> None:
    few = [row(claimed="89.96"), row("ff", 20.0), row("symba", None, failure="diverged")]
    assert draw(few, SETTINGS_OF_TESTS, tmp_path) == tmp_path / FIGURE
    with Image.open(tmp_path / FIGURE) as image:
        small = image.size
    draw([row(str(number)) for number in range(24)], SETTINGS_OF_TESTS, tmp_path)
    with Image.open(tmp_path / FIGURE) as image:
        assert image.size[0] == small[0]
        assert image.size[1] > 2 * small[1]
    assert [path.name for path in tmp_path.iterdir()] == [FIGURE]


def test_without_matplotlib_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'hff\[plots\]'"):
        draw([row()], SETTINGS_OF_TESTS, tmp_path)
