"""Entrants: methods with options, and the form of network that each method gets."""

from pathlib import Path

import pytest
from test_comparison import DIGITS, MLP, TINY

from hff.comparison import Comparison, ComparisonSettings
from hff.comparison.entrants import Entrant, entries_of, entry_of, find_entrants
from hff.comparison.forms import formed, given_options
from hff.data import Preprocessing, load_data
from hff.errors import UserError
from hff.experiment import PARTS, Selection
from hff.methods import Form, Group, methods
from hff.paper import claimed
from hff.training import Run

CNN = Selection("cnn", {field.name: field.default for field in PARTS["network"].fields("cnn")})
INPUTS = Preprocessing((0.1307,), (0.3081,), 255.0, (1, 28, 28))


def entrants(settings: ComparisonSettings, *names: str) -> dict[str, Entrant]:
    found, unsupported = find_entrants(settings, entries_of(names).values(), load_data("digits", limit=200))
    assert not unsupported
    return found


def test_an_entry_has_options_a_name_and_a_folder() -> None:
    entry = entry_of("hff:temperature=5:aux-channels=64+32")
    assert entry.options == {"temperature": 5.0, "aux_channels": (64, 32)}
    assert entry.name == "hff:temperature=5:aux_channels=64+32"
    assert entry.folder == "hff-temperature=5-aux_channels=64+32"
    assert entry_of(entry.name) == entry
    assert entry_of(Selection("hff", {"temperature": 5})).name == "hff:temperature=5"
    assert list(entries_of(["hff", "hff", "hff:temperature=5"])) == ["hff", "hff:temperature=5"]
    with pytest.raises(UserError, match="temperature must be a number, not 'warm'"):
        entry_of("hff:temperature=warm")


def test_two_entrants_cannot_share_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hff.comparison.entrants.Entry.folder", "x")
    with pytest.raises(UserError, match="'hff' and 'sff' would share the folder x"):
        entries_of(["hff", "sff"])


def test_entrants_of_one_method_are_trained_with_their_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 10**6)
    names = ["hff", Selection("hff", {"temperature": 5})]
    results = Comparison(tmp_path, TINY, names).run()
    assert {each.method for each in results} == {"hff", "hff:temperature=5"}
    found = [Run.open(tmp_path / name).config["method"] for name in ("hff", "hff-temperature=5")]
    assert [method["temperature"] for method in found] == [10.0, 5.0]
    assert Comparison.open(tmp_path).results() == results


def test_the_control_of_a_rule_enters_as_backprop_and_has_no_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hff.comparison.compare.MemoryMeter.peak", lambda *_: 10**6)
    monkeypatch.setattr("hff.comparison.result.claimed", lambda *_: claimed("hff", "mnist", "mlp"))
    found = {
        each.method: each for each in Comparison(tmp_path, TINY, ["hff", "hff:backprop=last_loss"]).run()
    }
    rule, control = found["hff"], found["hff:backprop=last_loss"]
    assert (rule.group, rule.claimed) == (Group.LOCAL, "98.59 ± 0.07")
    assert (control.group, control.claimed) == (Group.BACKPROP, None)
    assert control.prediction_parameters == control.parameters == rule.prediction_parameters


def test_a_method_gets_the_form_that_it_declares_unless_all_get_the_same_network() -> None:
    settings = ComparisonSettings(DIGITS, epochs=1)
    found = entrants(settings, "dfa", "equilibrium_prop", "tff", "hff", "cnn_ff")
    assert found["dfa"].form == "activation tanh"
    assert found["dfa"].experiment.network.options["activation"] == "tanh"
    assert found["equilibrium_prop"].network == "mlp 512"
    assert found["equilibrium_prop"].experiment.method.options["input_scale"] == pytest.approx(0.37, abs=0.02)
    assert found["tff"].form == "norm batch, norm_at input, bias false"
    assert found["hff"].form == "bare"
    assert found["cnn_ff"].experiment.network.options["norm"] == "layer"
    same = entrants(ComparisonSettings(DIGITS, epochs=1, same_network=True), "dfa", "equilibrium_prop")
    assert [each.form for each in same.values()] == ["bare", "bare"]
    assert same["equilibrium_prop"].network == "mlp 3x500"
    assert same["equilibrium_prop"].experiment.method.options["input_scale"] == 1.0


def test_options_that_the_user_gives_are_kept() -> None:
    given = Selection("mlp", {**MLP.options, "activation": "sigmoid"})
    found = entrants(ComparisonSettings(DIGITS, given, epochs=1), "dfa", "equilibrium_prop", "tff")
    assert found["dfa"].form == "bare"
    assert found["equilibrium_prop"].network == "mlp 16-12"
    assert found["tff"].experiment.network.options["activation"] == "sigmoid"
    assert given_options(CNN) == set()
    entry = entrants(TINY, "equilibrium_prop:input_scale=0.5")["equilibrium_prop:input_scale=0.5"]
    assert entry.experiment.method.options["input_scale"] == 0.5


def test_options_that_a_network_does_not_have_are_left_out() -> None:
    form = Form({"norm": "batch", "norm_at": "input", "widths": (5,)}, raw_inputs=("factor", "shift"))
    found = formed(form, CNN, (), INPUTS)
    assert found.text == "norm batch, norm_at input, factor 0.3081, shift 0.1307"
    assert found.method_options == {"factor": 0.3081, "shift": 0.1307}
    vgg = Selection("vgg11", {})
    table = Preprocessing((0.5, 0.2), (1.0, 1.0), 1.0, (2,))
    # The place of the norm cannot be set, and a table has one scale for each column.
    assert formed(form, vgg, (), table).text == "bare"


@pytest.mark.parametrize("name", sorted(methods))
def test_every_declared_form_names_options_that_exist(name: str) -> None:
    form = methods[name].info.form
    tables = {field.name for table in ("mlp", "cnn") for field in PARTS["network"].fields(table)}
    options = {field.name for field in PARTS["method"].fields(name)}
    assert set(form.network) <= tables
    assert {*form.method, *(form.raw_inputs or ())} <= options
