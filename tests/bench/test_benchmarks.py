"""`hff bench`: statistics, the four kinds at small size, and the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hff.bench import compiling, depth, epoch, inference, step
from hff.bench.figure import draw
from hff.bench.result import BenchResult, Median, median, ratio
from hff.cli import main
from hff.methods import compiled, create_method
from hff.methods.families.pairs import PairMethod
from hff.networks import create_network
from hff.training import Run, Settings


def test_median_and_its_interval() -> None:
    assert median([3.0, 1.0, 2.0]) == Median(2.0, 1.0, 3.0)
    # For 10 values, the interval from the 2nd to the 9th covers the median with 97.9 %: 1 - 2 * 11 / 1024.
    assert median(list(map(float, range(10)))) == Median(4.5, 1.0, 8.0)
    assert ratio([2.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == Median(2.0, 2.0, 3.0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = {
        "small": ("mlp", (12,), {"widths": (8, 8)}, 2),
        "maps": ("cnn", (1, 8, 8), {"channels": (4,)}, 1),
    }
    for module in (step, epoch, compiling):
        monkeypatch.setattr(module, "NETWORKS", networks)
    monkeypatch.setattr(inference, "IN_FEATURES", 20)
    monkeypatch.setattr(inference, "WIDTHS", (8, 8, 8))


@pytest.mark.usefixtures("tiny")
def test_steps_have_ratios_to_backprop_and_to_the_floor(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    result = step.bench_steps(("small", "maps"), ("hff",), (1,), rounds=3)
    assert torch.get_num_threads() == before
    rows = {(row["network"], row["method"]): row for row in result.rows}
    assert set(rows) == {(a, b) for a in ("small", "maps") for b in ("backprop", "hff")}
    assert rows["small", "backprop"]["ratio_to_backprop"] == Median(1.0, 1.0, 1.0)
    # A whole step takes longer than the products and the optimizer in it.
    assert rows["small", "hff"]["ratio_to_floor"].median > 1
    assert rows["maps", "hff"]["ratio_to_floor"] is None
    assert draw(result, tmp_path).read_bytes().startswith(b"\x89PNG")
    assert result.to_csv().splitlines()[0].startswith("network,threads,method,parameters,ms_per_step,")


def test_the_floor_multiplies_what_the_rule_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, ...]] = []
    product = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: done.append((*a.shape, b.shape[1])) or product(a, b))
    step.floor((7, 5, 3), is_local=True)()
    forward, weights = [(128, 7, 5), (128, 5, 3)], [(5, 128, 7), (3, 128, 5)]
    scores = [(10, 5, 128), (10, 128, 5), (128, 10, 5), (10, 3, 128), (10, 128, 3), (128, 10, 3)]
    assert sorted(done) == sorted(forward + weights + scores)
    done.clear()
    step.floor((7, 5, 3), is_local=False)()
    assert sorted(done) == sorted([*forward, *weights, (128, 3, 5), *scores[3:]])


@pytest.mark.usefixtures("tiny")
def test_an_epoch_is_compared_with_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch, "BATCH_SIZE", 10)
    taken: list[str] = []
    timed = epoch.interleaved

    def interleaved(tasks: Any, rounds: int) -> Any:
        for name, task in tasks.items():
            task()
            taken.append(name)
        return {name: [2.0, 2.0] if name[0] == "hff" else [4.0, 4.0] for name in timed(tasks, rounds)} | {
            ("hff", "epoch"): [3.0, 3.0]
        }

    monkeypatch.setattr(epoch, "interleaved", interleaved)
    result = epoch.bench_epochs(("small",), ("hff",), (1,), images=120, rounds=2)
    assert taken == [(name, kind) for name in ("backprop", "hff") for kind in ("step", "epoch")]
    backprop, hff = result.rows
    assert (backprop["method"], backprop["gain_kept"]) == ("backprop", None)
    assert (hff["images"], hff["rounds"], hff["seconds_per_epoch"].median) == (110, 2, 3.0)
    # Half of the time is saved in the steps, and a quarter in an epoch.
    assert (hff["step_ratio"].median, hff["epoch_ratio"].median, hff["gain_kept"]) == (0.5, 0.75, 0.5)
    assert draw(result, tmp_path).exists()


def test_the_epoch_that_is_timed_trains_validates_and_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(Run, "append_metrics", lambda run, record: written.append("metrics"))
    monkeypatch.setattr(Run, "save", lambda run, tensors, state: written.append("checkpoint"))
    monkeypatch.setattr(Run, "metrics", lambda run: [])
    data = epoch.random_images((1, 4, 4), 24)
    assert data.validation is not None
    assert (len(data.train), len(data.validation), data.in_shape) == (22, 2, (1, 4, 4))
    method = create_method("hff", create_network("mlp", data.in_shape, 10, widths=(6,)), 10)
    before = [p.clone() for p in method.parameters()]
    task = epoch.epoch(method, data, Settings(epochs=1, batch_size=8))
    task()
    task()
    assert written == ["metrics", "checkpoint"] * 2
    assert not any(torch.equal(a, b) for a, b in zip(before, method.parameters(), strict=True))


@pytest.mark.usefixtures("tiny")
def test_compiled_steps_are_compared_with_two_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    (row,) = compiling.bench_compile(("small",), ("hff",), rounds=2).rows
    assert row["compile_seconds"] > row["ms_compiled"].median / 1e3
    assert row["ratio_to_default"].median > 0
    assert {"ms_default", "ms_autograd", "ratio_to_autograd"} <= row.keys()
    assert draw(BenchResult("compile", (row,)), tmp_path).exists()
    torch._dynamo.reset()


def test_memory_of_all_contenders() -> None:
    result = depth.bench_memory((2,), (8,), channels=4, side=8, rounds=1)
    assert [row["contender"] for row in result.rows] == list(depth.CONTENDERS)
    assert all(row["live_mb"] > 0 and row["parameters_and_state_mb"] > 0 for row in result.rows)


def test_ways_to_predict_with_forward_forward_agree() -> None:
    method = create_method("ff", create_network("mlp", (20,), 4, widths=(8, 8)), 4).eval()
    assert isinstance(method, PairMethod)
    x = torch.randn(5, 20)
    with torch.no_grad():
        expected = method(x)
        torch.testing.assert_close(inference.all_labels_at_once(method, x), expected)
        torch.testing.assert_close(inference.one_label_at_a_time(method, x, 4), expected)
        torch.testing.assert_close(inference.one_label_at_a_time(method, x, 3), expected[:, :3])


@pytest.mark.usefixtures("tiny")
def test_inference_has_the_columns_of_the_paper() -> None:
    result = inference.bench_inference((3,), (1, 4), (1,), rounds=2)
    assert len(result.rows) == 2 * 5
    for row in result.rows:
        expected = 1000 / row["ms_per_image"].median
        assert row["images_per_second"] == pytest.approx(expected)
        assert row["total_seconds"] == pytest.approx(10_000 / expected)


@pytest.mark.usefixtures("tiny")
def test_forward_forward_is_timed_on_a_share_of_a_large_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    goodness = inference._goodness
    monkeypatch.setattr(inference, "PAIRS", 12)
    monkeypatch.setattr(inference, "_goodness", lambda ff, h: seen.append(h.shape) or goodness(ff, h))
    shares = {name: share for name, (_, share) in inference._ways(6, 4).items()}
    # Three of six labels for four images; two of four images for all labels.
    assert shares == {
        "backprop": 1,
        "hff": 1,
        inference.ONE_BY_ONE: 0.5,
        inference.BATCHED: 0.5,
        inference.SHARED: 0.5,
    }
    assert [shape[0] for shape in seen] == [4, 4, 4, 12]
    row = inference.bench_inference((6,), (4,), (1,), rounds=1).rows[2]
    assert (row["method"], row["measured_share"]) == (inference.ONE_BY_ONE, 0.5)


@pytest.mark.usefixtures("tiny")
def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags: list[Any] = ["bench", "step", "--networks", "small", "--threads", "1", "--rounds", "2"]
    assert main([*flags, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    wrote, *table = printed.splitlines()
    assert wrote == f"Wrote {tmp_path / 'step.csv'} and {tmp_path / 'step.png'}."
    assert max(map(len, table)) <= 80
    assert {path.name for path in tmp_path.iterdir()} == {"step.csv", "step.png"}
    assert main([*flags, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["method"] for row in document["rows"]} == set(step.METHODS)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["step", "--networks", "mlp 3x25"], "did you mean 'mlp 3x256'?"),
        (["step", "--threads", "x"], "--threads must be a list of whole numbers"),
        (["memory", "--threads", "1"], "`hff bench memory` has no --threads; remove it."),
        (["step", "--rounds", "0"], "--rounds must be at least 1"),
        (["epoch", "--images", "0"], "--images must be at least 1"),
        (["epoch", "--images", "9", "--data", "digits"], "--images is for random images"),
        (["step", "--data", "mnist"], "`hff bench step` has no --data; remove it."),
        (["convergence", "--rates", "1e-3,0"], "--rates must be a list of positive numbers"),
        (["pace"], "invalid choice"),
    ],
)
def test_a_mistake_is_one_sentence(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *argv]) == 2
    assert message in capsys.readouterr().err


def test_a_result_knows_its_machine() -> None:
    result = BenchResult("step", ({"a": median([1.0, 2.0, 3.0]), "b": None},))
    assert result.to_json()["rows"] == [{"a": {"median": 2.0, "low": 1.0, "high": 3.0}, "b": None}]
    assert {"processor", "torch", "threads"} <= result.machine.keys()
