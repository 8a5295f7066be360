"""A package, installed into an environment of its own, adds a method and a network to every verb."""

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PACKAGE = Path(__file__).parent.parent / "examples" / "hff_ridge"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has everything installed here, and the example package."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    interpreter = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    home = subprocess.run(
        [interpreter, "-c", "import site; print(site.getsitepackages()[0])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    Path(home, "installed_here.pth").write_text("\n".join(lines) + "\n")
    install = ["-m", "pip", "install", "-qq", "--no-deps", "--no-index", "--no-build-isolation", str(PACKAGE)]
    subprocess.run([interpreter, *install], check=True)
    return interpreter


def hff(python: Path, folder: Path, *argv: str) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [python, "-m", "hff", *argv], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_rule_and_the_network_are_short() -> None:
    source = PACKAGE / "src" / "hff_ridge"
    assert len((source / "ridge.py").read_text().splitlines()) <= 40
    assert len((source / "funnel.py").read_text().splitlines()) <= 15


def test_a_method_and_a_network_of_another_package_work_in_every_verb(python: Path, tmp_path: Path) -> None:
    listed = json.loads(hff(python, tmp_path, "list", "methods", "--json"))
    assert "ridge" in {each["name"] for each in listed}
    listed = json.loads(hff(python, tmp_path, "list", "networks", "--json"))
    assert "funnel" in {each["name"] for each in listed}
    assert "--method.penalty" in hff(python, tmp_path, "train", "--method", "ridge", "--help")

    flags = ("--method", "ridge", "--method.penalty", "1e-5", "--network", "funnel", "--network.first", "256")
    hff(python, tmp_path, "train", *flags, "--epochs", "8", "--out", "run", "--quiet")
    result = json.loads(hff(python, tmp_path, "eval", "run", "--json"))
    assert result["accuracy"] > 0.8
    assert len(result["layers"]) == 3

    image = np.random.default_rng(0).integers(256, size=(8, 8), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "digit.png")
    (prediction,) = json.loads(hff(python, tmp_path, "predict", "run", "digit.png", "--json"))["predictions"]
    assert len(prediction["layers"]) == 3

    compared = ("compare", "--methods", "ridge,hff", "--network", "funnel", "--epochs", "15", "--json")
    rows = json.loads(hff(python, tmp_path, *compared))["results"]
    assert {row["method"] for row in rows} == {"ridge", "hff"}
    assert {row["method"]: row["test_accuracy"] > 50 for row in rows} == {"ridge": True, "hff": True}


def test_without_the_package_its_run_is_refused_by_name(python: Path, tmp_path: Path) -> None:
    flags = ("--method", "ridge", "--network.widths", "16", "--epochs", "1", "--out", "run", "--quiet")
    hff(python, tmp_path, "train", *flags)
    done = subprocess.run(
        [sys.executable, "-m", "hff", "eval", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Unknown method 'ridge'" in done.stderr
