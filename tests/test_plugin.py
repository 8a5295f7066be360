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
    (printed,) = hff_commands(python, folder, argv)
    return printed


def hff_commands(python: Path, folder: Path, *commands: tuple[str, ...]) -> list[str]:
    """What each command prints. All run in one process, because importing torch takes most of the time."""
    done = subprocess.run(
        [python, "-c", IN_ONE_PROCESS, json.dumps(commands)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: list[str] = json.loads(done.stdout)
    return printed


IN_ONE_PROCESS = """
import contextlib, io, json, sys
from hff.cli import main
if __name__ == "__main__":
    printed = []
    for argv in json.loads(sys.argv[1]):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert main(argv) == 0, argv
        printed.append(output.getvalue())
    print(json.dumps(printed))
"""


def test_the_rule_and_the_network_are_short() -> None:
    source = PACKAGE / "src" / "hff_ridge"
    assert len((source / "ridge.py").read_text().splitlines()) <= 40
    assert len((source / "funnel.py").read_text().splitlines()) <= 15


def test_a_method_and_a_network_of_another_package_work_in_every_verb(python: Path, tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(256, size=(8, 8), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "digit.png")
    flags = ("--method", "ridge", "--method.penalty", "1e-5", "--network", "funnel", "--network.first", "256")
    known, tables, help_text, _, evaluated, predicted, compared = hff_commands(
        python,
        tmp_path,
        ("list", "methods", "--json"),
        ("list", "networks", "--json"),
        ("train", "--method", "ridge", "--help"),
        ("train", *flags, "--epochs", "8", "--out", "run", "--quiet"),
        ("eval", "run", "--json"),
        ("predict", "run", "digit.png", "--json"),
        ("compare", "--methods", "ridge,hff", "--network", "funnel", "--epochs", "8", "--json"),
    )
    assert "ridge" in {each["name"] for each in json.loads(known)}
    assert "funnel" in {each["name"] for each in json.loads(tables)}
    assert "--method.penalty" in help_text
    result = json.loads(evaluated)
    assert result["accuracy"] > 0.8
    assert len(result["layers"]) == 3
    (prediction,) = json.loads(predicted)["predictions"]
    assert len(prediction["layers"]) == 3
    rows = json.loads(compared)["results"]
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
