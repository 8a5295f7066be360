"""Comparisons: the same settings for all, nothing trained or tested twice, ranked on validation."""

import csv
import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hff.comparison import Comparison, ComparisonListener, ComparisonSettings, MethodResult
from hff.comparison.compare import FIGURE
from hff.comparison.entrants import default_networks, entries_of, find_entrants
from hff.comparison.figure import draw
from hff.comparison.ranking import ranked, ranks
from hff.comparison.results import as_csv, as_markdown, cells
from hff.comparison.saved import SETTINGS
from hff.comparison.settings import PROTOCOL
from hff.data import load_data
from hff.errors import UserError
from hff.experiment import PARTS, Experiment, Selection
from hff.methods import Group, methods
from hff.methods.mono_forward import MonoForward
from hff.networks import create_network
from hff.paper import claimed
from hff.training import Listener, Run
from hff.training.run import write_json

DIGITS = Experiment.from_mapping({"data": {"name": "digits", "limit": 200}}).data
MLP = Selection("mlp", {"widths": (16, 12)})
TINY = ComparisonSettings(DIGITS, MLP, epochs=2, batch_size=64)
NAMES = ["backprop", "mono_forward", "sff"]
MEMORY = 12_300_000
HFF = Selection("hff", {})


@pytest.fixture(autouse=True)
def known_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring memory starts a process, which is slow and tested elsewhere."""
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: MEMORY)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The methods that were trained, resumed and evaluated."""
    counts: dict[str, list[str]] = {"train": [], "resume": [], "evaluate_run": []}
    compare = "hff.comparison.compare."
    compare_module = import_module("hff.comparison.compare")

    def counting(name: str, real: Any) -> Any:
        def count(first: Any, *arguments: Any, **options: Any) -> Any:
            counts[name].append(first.method.name if name == "train" else first.folder.name)
            return real(first, *arguments, **options)

        return count

    for name in counts:
        monkeypatch.setattr(compare + name, counting(name, getattr(compare_module, name)))
    return counts


def result(method: str = "hff", validation: float | None = 90.0, **facts: Any) -> MethodResult:
    known: dict[str, Any] = {
        "title": method.upper(),
        "group": Group.LOCAL,
        "network": "mlp 16-12",
        "form": "bare",
        "test_accuracy": 89.5,
        "claimed": None,
        "training_seconds": 60.0,
        "epochs": 4.5,
        "seconds_per_epoch": 13.3333,
        "peak_memory_mb": 40.0,
        "passes": 1,
        "seconds_per_10000_predictions": 0.25,
        "parameters": 1200,
        "prediction_parameters": 1000,
        "learning_rate": 1e-3,
        "failure": None,
    }
    return MethodResult(method=method, validation_accuracy=validation, **{**known, **facts})


def test_a_comparison_ranks_ordinary_runs_and_repeats_nothing(
    tmp_path: Path, counted: dict[str, list[str]]
) -> None:
    results = Comparison(tmp_path, TINY, NAMES).run()
    assert sorted(each.method for each in results) == NAMES
    accuracies = [each.validation_accuracy or 0 for each in results]
    assert accuracies == sorted(accuracies, reverse=True)
    for each in results:
        run = Run.open(tmp_path / each.method)
        summary, tested = run.summary() or {}, run.evaluation("test") or {}
        assert each.validation_accuracy == round(100 * summary["read_out_accuracy"], 2)
        assert each.test_accuracy == round(100 * tested["accuracy"], 2)
        assert run.config["lr_schedule"] == "cosine"
        assert (each.epochs, each.passes, each.network) == (2, 1, "mlp 16-12")
        assert each.peak_memory_mb == MEMORY / 1e6
        assert each.training_seconds == pytest.approx(2 * (each.seconds_per_epoch or 0), abs=0.01)
        assert each.seconds_per_10000_predictions is not None
    with (tmp_path / "comparison.csv").open(newline="") as file:
        assert [(r["rank"], r["method"]) for r in csv.DictReader(file)] == [
            (rank, each.method) for rank, each in zip(ranks(results), results, strict=True)
        ]
    assert counted == {"train": NAMES, "resume": [], "evaluate_run": NAMES}

    again = Comparison.open(tmp_path).run()
    assert again == results
    assert counted == {"train": NAMES, "resume": [], "evaluate_run": NAMES}


def test_an_interrupted_comparison_resumes_and_tests_only_at_the_end(
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
        Comparison(tmp_path, TINY, NAMES).run(StopAtTheSecond())
    assert counted == {"train": NAMES[:2], "resume": [], "evaluate_run": []}
    assert Run.open(tmp_path / NAMES[1]).position().epoch == 1

    results = Comparison(tmp_path, TINY, NAMES).run()
    assert counted == {"train": NAMES, "resume": [NAMES[1]], "evaluate_run": NAMES}
    assert [each.epochs for each in results] == [2, 2, 2]
    assert len(Run.open(tmp_path / NAMES[1]).metrics()) == 2


def test_methods_can_be_added_later(tmp_path: Path, counted: dict[str, list[str]]) -> None:
    Comparison(tmp_path, TINY, NAMES[:1]).run()
    results = Comparison(tmp_path, TINY, NAMES[:2]).run()
    assert len(results) == 2
    assert counted == {"train": NAMES[:2], "resume": [], "evaluate_run": NAMES[:2]}


def test_a_failed_method_is_reported_and_not_trained_again(
    tmp_path: Path, counted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*_: Any) -> Any:
        raise UserError("The loss of block0 is not finite; use a smaller learning rate.")

    monkeypatch.setattr(MonoForward, "observe_validation", diverge)
    first = Comparison(tmp_path, TINY, NAMES).run()
    assert Comparison.open(tmp_path).run() == first
    assert [each.method for each in first][-1] == "mono_forward"
    assert "not finite" in (first[-1].failure or "")
    assert first[-1].test_accuracy is None
    assert counted == {"train": NAMES, "resume": [], "evaluate_run": ["backprop", "sff"]}
    assert "`mono_forward` failed: The loss" in (tmp_path / "comparison.md").read_text()


def test_each_method_has_its_own_learning_rate_unless_one_is_given() -> None:
    for name, method in methods.items():
        entry = Selection(name, {})
        assert TINY.experiment(entry, MLP).training.learning_rate == method.info.learning_rate
    common = ComparisonSettings(DIGITS, MLP, epochs=2, learning_rate=0.02)
    assert common.experiment(HFF, MLP).training.learning_rate == 0.02


def test_a_budget_limits_seconds_epochs_or_both() -> None:
    budgets: list[tuple[dict[str, Any], tuple[float | None, str, str]]] = [
        ({"seconds": 7.0}, (7.0, "seconds", "7s")),
        ({"epochs": 3}, (None, "seconds", "3epochs")),
        ({"seconds": 7.0, "epochs": 3}, (7.0, "either", "7s-3epochs")),
    ]
    for budget, expected in budgets:
        settings = ComparisonSettings(DIGITS, **budget)
        training = settings.experiment(HFF, MLP).training
        assert (training.seconds, training.stop_at, settings.budget) == expected
        assert "epochs" not in budget or training.epochs == 3


def test_every_method_has_a_default_network_and_a_given_network_may_be_unsupported() -> None:
    data, entries = load_data("digits", limit=200), entries_of(None).values()
    found, unsupported = find_entrants(ComparisonSettings(DIGITS, seconds=5.0), entries, data)
    assert set(found) == set(methods)
    assert not unsupported
    assert found["hff"].network == "mlp 3x500"
    assert found["cwconv"].network == "cnn 30-60"
    found, unsupported = find_entrants(TINY, entries, data)
    assert set(found) | set(unsupported) == set(methods)
    network = create_network("mlp", (1, 8, 8), 10, **MLP.options)
    assert unsupported["cwconv"] == methods["cwconv"].unsupported_reason(network, 10)


@pytest.mark.parametrize("classes", [2, 3, 10, 100, 1000])
def test_the_default_channels_are_multiples_of_the_classes(classes: int) -> None:
    channels = default_networks(classes)[1].options["channels"]
    assert all(width and width % classes == 0 for width in channels)


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    Comparison(tmp_path, TINY, NAMES[:1]).run()
    wider = Selection("mlp", {"widths": (16, 13)})
    for other, words in (
        (replace(TINY, epochs=3), "epochs 2, not 3"),
        (replace(TINY, network=wider), "network.widths 16,12, not 16,13"),
        (replace(TINY, network=None), "network mlp, not none"),
    ):
        with pytest.raises(UserError, match=f"contains a comparison with {words}; choose another folder"):
            Comparison(tmp_path, other, NAMES[:1])


def test_a_comparison_of_another_protocol_is_refused(tmp_path: Path) -> None:
    Comparison(tmp_path, TINY, NAMES[:1]).run()
    saved = json.loads((tmp_path / SETTINGS).read_text())
    assert saved["protocol"] == PROTOCOL
    write_json(tmp_path / SETTINGS, {**saved, "protocol": PROTOCOL + 1})
    other = rf"contains a comparison of protocol {PROTOCOL + 1}, but this version of hff follows protocol"
    for make in (lambda: Comparison(tmp_path, TINY, NAMES[:1]), lambda: Comparison.open(tmp_path)):
        with pytest.raises(UserError, match=other):
            make()
    write_json(tmp_path / SETTINGS, {"settings": saved["settings"], "methods": saved["methods"]})
    with pytest.raises(UserError, match="from before protocols had versions"):
        Comparison.open(tmp_path)
    (tmp_path / SETTINGS).rename(tmp_path / "terms.json")
    with pytest.raises(UserError, match="from before protocols had versions"):
        Comparison(tmp_path, TINY, NAMES[:1])
    # The runs themselves can still be opened.
    assert Run.open(tmp_path / NAMES[0]).finished


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Unknown method 'bakprop'; did you mean 'backprop'"):
        Comparison(tmp_path, TINY, ["bakprop"])
    with pytest.raises(UserError, match="no methods to compare"):
        Comparison(tmp_path, TINY, [])
    with pytest.raises(UserError, match="does not contain a comparison"):
        Comparison.open(tmp_path)
    with pytest.raises(UserError, match="needs a budget: seconds, epochs, or both"):
        ComparisonSettings(DIGITS)
    with pytest.raises(UserError, match="seeds must be at least 1, not 0"):
        ComparisonSettings(DIGITS, epochs=1, seeds=0)
    with pytest.raises(UserError, match="either a learning rate for all methods, or rates to try"):
        ComparisonSettings(DIGITS, epochs=1, learning_rate=0.01, rates="search")
    blind = Selection("digits", {**DIGITS.options, "validation": 0})
    with pytest.raises(UserError, match=r"set data\.validation above 0"):
        Comparison(tmp_path, ComparisonSettings(blind, epochs=1))
    vgg = Selection("vgg11", {field.name: field.default for field in PARTS["network"].fields("vgg11")})
    with pytest.raises(UserError, match="needs images of 32x32"):
        Comparison(tmp_path, ComparisonSettings(DIGITS, vgg, epochs=1), ["hff"])
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        Comparison(tmp_path, TINY)
    assert [path.name for path in tmp_path.iterdir()] == [SETTINGS]


def test_settings_are_read_as_written() -> None:
    for settings in (TINY, ComparisonSettings(DIGITS, seconds=5.0, epochs=3, rates=(0.01, 0.1), seeds=3)):
        again = ComparisonSettings.from_mapping(json.loads(json.dumps(settings.to_mapping())))
        assert again.difference(settings) is None


def test_a_batch_size_that_is_not_given_is_chosen_for_the_data(tmp_path: Path) -> None:
    settings = replace(TINY, batch_size=None)
    comparison = Comparison(tmp_path, settings, ["hff"])
    assert comparison.settings.batch_size == comparison.entrants["hff"].experiment.training.batch_size == 16
    saved = {"protocol": PROTOCOL, "settings": comparison.settings.to_mapping(), "methods": ["hff"]}
    write_json(tmp_path / SETTINGS, saved)
    # The same command resumes the comparison.
    assert Comparison(tmp_path, settings, ["hff"]).settings == comparison.settings
    with pytest.raises(UserError, match="a comparison with batch_size 16, not 64"):
        Comparison(tmp_path, TINY, ["hff"])


def test_methods_are_ranked_by_validation_accuracy() -> None:
    results = [
        result("a", 80.0, test_accuracy=99.0),
        result("b", 91.0),
        result("d", None, failure="diverged"),
        result("c", 91.0, test_accuracy=95.0),
    ]
    assert [each.method for each in ranked(results)] == ["b", "c", "a", "d"]


def test_tables_show_failed_and_unsupported_methods() -> None:
    results = [result(claimed="89.96 ± 0.10"), result("ff", None, failure="It diverged.", test_accuracy=None)]
    assert cells(results)[0][:6] == ["1", "hff", "local", "mlp 16-12", "bare", "0.001"]
    assert cells(results)[0][6:11] == ["90.00", "89.50", "89.96 ± 0.10", "1,000", "1,200"]
    assert cells(results)[0][11:] == ["60.0", "4.5", "13.3", "40", "1", "0.25"]
    assert cells(results)[1][:8] == ["–", "ff", "local", "mlp 16-12", "bare", "0.001", "failed", "–"]
    page = as_markdown(results, {"cwconv": "It needs convolutions."}, TINY)
    assert page.startswith("# digits (limit 200), mlp: 2 epochs of training each, batches of 64, seed 0\n")
    assert "- `ff` failed: It diverged.\n- `cwconv` is left out: It needs convolutions." in page
    assert [line.split(",")[:2] for line in as_csv(results).splitlines()[1:]] == [["1", "hff"], ["", "ff"]]


def test_claims_are_found_by_method_data_and_kind_of_network() -> None:
    claim = claimed("hff", "fashion_mnist", "mlp")
    assert claim is not None
    assert (claim.printed, result(claimed=claim.printed).claimed_value) == ("89.96 ± 0.10", 89.96)
    assert claimed("hff", "digits", "mlp") is None
    assert claimed("cwconv", "cifar10", "cwconv_cnn") == claimed("cwconv", "cifar10", "cnn") is not None


def test_the_height_of_the_figure_grows_with_the_methods(tmp_path: Path) -> None:
    few = [result(claimed="89.96"), result("ff", 20.0), result("symba", None, failure="diverged")]
    assert draw(few, TINY, tmp_path) == tmp_path / FIGURE
    with Image.open(tmp_path / FIGURE) as image:
        small = image.size
    draw([result(str(number)) for number in range(24)], TINY, tmp_path)
    with Image.open(tmp_path / FIGURE) as image:
        assert image.size[0] == small[0]
        assert image.size[1] > 2 * small[1]
    assert [path.name for path in tmp_path.iterdir()] == [FIGURE]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"a":' * 100_000,
        '{"protocol": 1, "settings": 1, "methods": []}',
        '{"protocol": 1, "settings": {"data": {"name": "digits", "options": {}}, "network": null},'
        ' "methods": [1]}',
        '{"protocol": 1, "settings": {"data": {"name": 3, "options": {}}, "network": null}, "methods": []}',
        '{"protocol": 1, "settings": {"data": {"name": "digits", "options": {}}, "network": null,'
        ' "epochs": "x"}, "methods": []}',
    ],
)
def test_damaged_settings_of_a_comparison_are_named(content: str, tmp_path: Path) -> None:
    (tmp_path / SETTINGS).write_text(content)
    with pytest.raises(UserError, match=r"settings\.json (is damaged|cannot be read)") as error:
        Comparison.open(tmp_path)
    assert "\n" not in str(error.value)


def test_two_processes_cannot_run_one_comparison(tmp_path: Path) -> None:
    first = Comparison(tmp_path, TINY, ["backprop"], device="cpu")
    second = Comparison(tmp_path, TINY, ["backprop"], device="cpu")
    with first.lock, pytest.raises(UserError, match="Another process is writing to"):
        second.run()
    second.run()


def test_a_run_that_another_process_trains_is_not_a_failure(tmp_path: Path) -> None:
    comparison = Comparison(tmp_path, TINY, ["backprop"], device="cpu")
    with comparison.run_of("backprop").lock, pytest.raises(UserError, match="Another process is writing to"):
        comparison.run()
    assert comparison.run_of("backprop").failure() is None
    assert comparison.run()[0].failure is None
