"""The claims of the paper: some cells checked against the paper by hand, and all of them for consistency."""

import subprocess
import sys
import tomllib
from collections import Counter
from importlib import resources

import pytest

from hff.errors import UserError
from hff.paper import Claim, claims, find

METHODS = {
    "hff", "backprop", "ff", "symba", "ffcl", "layer_collab", "ffcm", "cnn_ff", "cwconv", "tff", "sff",
    "mono_forward", "noprop_dt", "dll", "fa", "dfa", "ssdfa", "hebb", "softhebb", "equilibrium_prop",
    "simcnn",
}  # fmt: skip
DATA = {"mnist", "fashion_mnist", "cifar10", "cifar100", "imagenet"}
NETWORKS = {"mlp", "cnn", "alexnet", "vgg11", "vgg16"}
UNITS = {"%", "p.p.", "x", "s", "img/s", "ms/img", "epochs"}

CELLS = {
    "main_result_mlp": 34,
    "main_result_cnn": 47,
    "cifar100_ff_timing": 18,
    "ablation_activation": 36,
    "ablation_loss": 14,
    "ablation_scalability": 9,
    "ablation_auxconv": 8,
    "transfer_learning": 14,
    "ablation_norm": 24,
    "special_cases_tau": 8,
    "prototypes_ablation": 16,
    "layer_accs": 114,
    "text": 35,
}
"""The number of filled cells in each table of the paper."""


def name(claim: Claim) -> str:
    return f"{claim.table}: {claim.row}: {claim.column}"


def only(table: str, row: str, column: str) -> Claim:
    (claim,) = find(table=table, row=row, column=column)
    return claim


@pytest.mark.parametrize(
    ("table", "row", "column", "printed", "facts"),
    [
        ("main_result_mlp", "HFF-MLP", "C10", "61.93 ± 0.23", "hff cifar10 mlp %"),
        ("main_result_mlp", "SymBa", "C10", "59.09", "symba cifar10 mlp %"),
        ("main_result_mlp", "MLP", "fMNIST", "89.63 ± 0.25", "backprop fashion_mnist mlp %"),
        ("main_result_cnn", "HFF-CNN", "C100", "54.34 ± 0.50", "hff cifar100 cnn %"),
        ("main_result_cnn", "SFF", "C10", "70.34", "sff cifar10 cnn %"),
        ("main_result_cnn", "HFF-CNN", "IN1k", "25.70", "hff imagenet vgg16 %"),
        ("main_result_cnn", "DFA", "IN1k", "6.20", "dfa imagenet alexnet %"),
        ("cifar100_ff_timing", "Inference, HFF-MLP", "Time (s)", "14.39 ± 1.51", "hff cifar100 mlp s"),
        ("cifar100_ff_timing", "Convergence, HFF-MLP", "Time (s)", "34.23 ± 0.87", "hff mnist mlp s"),
        ("cifar100_ff_timing", "Convergence, Baseline FF", "Best Acc", "95.25 ± 0.20", "ff mnist mlp %"),
        ("ablation_activation", "MLP, MNIST, Pre", "Abs", "97.4", "hff mnist mlp %"),
        ("ablation_activation", "CNN, CIFAR-10, Pre", "Step", "53.53", "hff cifar10 cnn %"),
        ("ablation_loss", "VGG11, Cross-Entropy", "CIFAR-10", "73.44", "hff cifar10 vgg11 %"),
        ("ablation_scalability", "Depth, 1024-512", "Accuracy (%)", "97.04", "hff mnist mlp %"),
        ("ablation_auxconv", "0-0-0", "CIFAR-100", "38.06", "hff cifar100 cnn %"),
        ("transfer_learning", "AlexNet, HFF", "Transfer", "46.99", "hff imagenet alexnet %"),
        ("transfer_learning", "VGG16, SSDFA", "Transfer", "64.50", "ssdfa imagenet vgg16 %"),
        ("ablation_norm", "Input ✗, Sims ✓", "CNN, C100", "54.54", "hff cifar100 cnn %"),
        ("ablation_norm", "Input ✓, Sims ✗", "MLP, C100", "27.64", "hff cifar100 mlp %"),
        ("special_cases_tau", "P = 1, τ = 1000", "Acc", "30.21", "hff cifar100 cnn %"),
        ("prototypes_ablation", "CIFAR-10, HFF CNN, 4", "Acc", "83.58", "hff cifar10 cnn %"),
        ("layer_accs", "C10", "L4", "83.82", "hff cifar10 vgg11 %"),
        ("layer_accs", "IN1k-train", "L15", "26.74", "hff imagenet vgg16 %"),
        ("layer_accs", "C10-freeze", "L2", "10.2", "hff cifar10 vgg11 %"),
        ("text", "Abstract, speed of inference over FF", "Stated", ">40", "hff cifar100 mlp x"),
        ("text", "Transfer, BP", "Stated", "65.80", "backprop imagenet vgg16 %"),
    ],
)
def test_cells_match_the_paper(table: str, row: str, column: str, printed: str, facts: str) -> None:
    claim = only(table, row, column)
    assert claim.printed == printed
    assert f"{claim.method} {claim.data} {claim.network} {claim.unit}" == facts


@pytest.mark.parametrize(
    ("table", "row", "column", "value", "spread"),
    [
        ("main_result_cnn", "CNN", "MNIST", 99.25, 0.08),
        ("cifar100_ff_timing", "Convergence, HFF-MLP", "Epochs", 4.0, 0.0),
        ("transfer_learning", "VGG16, HFF", "Transfer", 65.96, None),
        ("text", "Abstract, ImageNet", "Stated", 25.0, None),
        ("text", "Introduction, CIFAR-10, above FF", "Stated", 16.0, None),
        ("text", "Prototypes, MNIST, gain of P > 1", "Stated", 0.04, None),
        ("text", "Time, inference, FF over HFF and BP", "Stated", 40.0, None),
    ],
)
def test_value_and_spread_are_parsed(
    table: str, row: str, column: str, value: float, spread: float | None
) -> None:
    claim = only(table, row, column)
    assert (claim.value, claim.spread) == (value, spread)


@pytest.mark.parametrize(
    ("table", "row", "column", "correction"),
    [
        ("main_result_mlp", "HFF-MLP", "fMNIST", "89.83"),
        ("main_result_cnn", "HFF-CNN", "MNIST", "99.08"),
        ("main_result_cnn", "No-Prop-DT", "MNIST", "99.54"),
        ("main_result_cnn", "No-Prop-DT", "C10", "80.54"),
        ("main_result_cnn", "SoftHebb (unsup)", "IN1k", "27.3"),
        ("transfer_learning", "AlexNet, BP", "From Scratch", "pretrained"),
        ("text", "Abstract, speed of inference over FF", "Stated", "39.3"),
    ],
)
def test_known_errors_are_noted(table: str, row: str, column: str, correction: str) -> None:
    assert correction in only(table, row, column).note


def test_a_note_on_a_cell_is_not_on_other_cells() -> None:
    assert only("main_result_cnn", "No-Prop-DT", "C100").note == ""
    assert only("main_result_cnn", "CwConv", "MNIST").note == ""


def test_a_note_on_a_row_is_on_all_its_cells() -> None:
    notes = [claim.note for claim in find(table="main_result_mlp", row="Layer Collab")]
    assert len(notes) == 3
    assert all("not one configuration" in note for note in notes)


def test_every_note_is_on_a_cell() -> None:
    text = resources.files("hff.paper").joinpath("claims.toml").read_text("utf-8")
    for table in tomllib.loads(text)["table"]:
        for note in table.get("notes", ()):
            place = {key: note[key] for key in ("row", "column") if key in note}
            assert any(note["note"] in claim.note for claim in find(table=table["label"], **place)), note


def test_rows_that_the_paper_prints_twice_are_kept() -> None:
    for column in ("MNIST", "C10"):
        repeated = only("main_result_cnn", "No-Prop-DT", column).printed
        assert repeated == only("main_result_cnn", "CwConv", column).printed


def test_empty_cells_are_not_claims() -> None:
    assert [claim.column for claim in find(table="main_result_mlp", method="ff")] == ["MNIST", "C10"]
    assert not find(table="ablation_activation", row="CNN, MNIST, Post", column="Step")


def test_no_number_is_missing() -> None:
    assert Counter(claim.table for claim in claims()) == CELLS


def test_every_cell_is_listed_once() -> None:
    repeated = [cell for cell, count in Counter(map(name, claims())).items() if count > 1]
    assert not repeated


def test_names_and_units_are_known() -> None:
    assert {claim.data for claim in claims()} == DATA
    assert {claim.unit for claim in claims()} == UNITS
    assert {claim.method for claim in claims()} == METHODS
    assert {claim.network for claim in claims()} == {*NETWORKS, None}


def test_claims_without_a_network_are_in_the_text() -> None:
    assert [claim.value for claim in find(method="simcnn")] == [58.1]
    assert {claim.table for claim in find(network=None)} == {"text"}


def test_accuracies_are_percentages() -> None:
    assert not [name(claim) for claim in find(unit="%") if not 0 <= claim.value <= 100]


def test_spreads_are_smaller_than_their_values() -> None:
    spread = [claim for claim in claims() if claim.spread is not None]
    assert len(spread) == 6 + 6 + 18
    assert not [name(claim) for claim in spread if not 0 <= (claim.spread or 0) < claim.value]


def test_find_matches_all_given_fields() -> None:
    found = find(method="hff", data="cifar10", network="mlp", table="main_result_mlp")
    assert [claim.value for claim in found] == [61.93]
    assert find() == claims()
    assert find(method="nobody") == ()


def test_find_refuses_an_unknown_field() -> None:
    with pytest.raises(UserError, match=r"Unknown field of a claim 'methods'; did you mean 'method'\?"):
        find(methods="hff")


def test_claims_need_no_torch() -> None:
    code = "import sys; from hff.paper import claims; claims(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
