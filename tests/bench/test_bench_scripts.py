"""The scripts in `benchmarks` that write files to `results/bench`."""

import csv
from pathlib import Path
from types import ModuleType

import pytest

from hff.experiment import Experiment, train

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """A script as a module, under another name than the modules of the library."""
    module = ModuleType(f"benchmarks_{name}")
    module.__file__ = str(ROOT / "benchmarks" / f"{name}.py")
    exec(compile(Path(module.__file__).read_text(encoding="utf-8"), module.__file__, "exec"), module.__dict__)
    return module


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_early_exit_of_a_run(tmp_path: Path) -> None:
    mapping = {
        "data": {"name": "digits", "validation": 600},
        "network": {"name": "mlp", "widths": [64, 64]},
        "epochs": 8,
        "batch_size": 32,
    }
    train(Experiment.from_mapping(mapping), tmp_path / "run", device="cpu")
    argv = [str(tmp_path / "run"), "--epsilons", "0.02", "0.001", "--threads", "1"]
    script("early_exit").main(argv, tmp_path)
    large, small = table(tmp_path / "early_exit.csv")
    assert (large["epsilon"], large["test_samples"], large["threads"]) == ("0.02", "360", "1")
    shares = [float(share) for share in large["share_of_each_layer"].split()]
    assert len(shares) == 2
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    lost = (int(large["lost"]) - int(large["gained"])) / 360
    assert float(large["full_accuracy"]) - float(large["accuracy"]) == pytest.approx(lost, abs=1e-4)
    assert float(large["time_ratio_1"]) > 0
    # 480 samples are too few for a guarantee of 0.001, so the full network predicts all of them.
    assert small["share_of_each_layer"].split() == ["0.0000", "1.0000"]


def test_the_profile_of_a_step(tmp_path: Path) -> None:
    profile = script("profile_step")
    small = {
        "small": ("mlp", (12,), {"widths": (8, 8)}, 1),
        "maps": ("cnn", (1, 8, 8), {"channels": (4,)}, 1),
    }
    for name, value in {
        "NETWORKS": small | {"cnn 32-64-128": small["maps"]},
        "PROFILED": {"small": 2, "maps": 1},
        "FOLDER": tmp_path,
        "ROUNDS": 2,
    }.items():
        assert name in vars(profile)
        vars(profile)[name] = value
    profile.main()
    rows = table(tmp_path / "profile.csv")
    assert {(row["network"], row["method"]) for row in rows} == {
        (network, method) for network in ("small", "maps") for method in ("hff", "backprop")
    }
    assert any(row["operation"] == "aten::addmm" and float(row["calls_per_step"]) >= 1 for row in rows)
    rows = table(tmp_path / "variants.csv")
    assert {row["threads"] for row in rows} == {"1", "2"}
    parameters = {row["variant"]: int(row["parameters"]) for row in rows}
    assert parameters.keys() == {"backprop", *profile.VARIANTS}
    bare, paper = "head without hidden layer", "head without hidden layer, grid 1 (paper)"
    assert parameters[paper] < parameters[bare] < parameters[profile.AUTOGRAD] == parameters[profile.WHOLE]
