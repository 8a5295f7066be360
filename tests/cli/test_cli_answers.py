"""`hff list`, `data`, `eval` and `predict`."""

import csv
import io
import json
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL.Image import DecompressionBombWarning
from sklearn.metrics import balanced_accuracy_score, precision_recall_fscore_support

from hff.cli import main
from hff.cli.data import fetch
from hff.cli.evaluate import _show, show_classes, show_confusions
from hff.cli.output import write_table
from hff.data import datasets
from hff.evaluation import Evaluation
from hff.methods import methods
from hff.networks import networks
from hff.recipes import recipes

TINY = ["--network.widths", "32,16", "--epochs", "1"]
Answer = Callable[[list[str]], Any]


def test_list_prints_tables_and_json(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, Iterable[str]] = {
        "methods": methods,
        "networks": networks,
        "datasets": datasets,
        "recipes": recipes(),
    }
    for what, registry in known.items():
        assert {entry["name"] for entry in answer(["list", what])} == set(registry)
        main(["list", what])
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        table = lines[1 : lines.index("")] if "" in lines else lines[1:]
        # Wrapped lines of a cell start with spaces.
        assert {line.split()[0] for line in table if not line.startswith(" ")} == set(registry)


def test_a_broken_package_does_not_break_the_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("broken", "no_such_package:Method", methods.group)
    monkeypatch.setattr(methods, "_entry_points", {"broken": point}, raising=False)
    assert main(["list", "methods", "--json"]) == 0
    printed = capsys.readouterr()
    assert {entry["name"] for entry in json.loads(printed.out)} == set(methods) - {"broken"}
    assert printed.err.startswith("hff: The method 'broken' of no_such_package:Method cannot be loaded")
    assert printed.err.count("\n") == 1


def test_data_list_shows_where_the_files_are(answer: Answer, tmp_path: Path) -> None:
    entries = {entry["name"]: entry for entry in answer(["data", "list", "--data-dir", str(tmp_path)])}
    assert set(entries) == set(datasets)
    assert entries["digits"]["source"] == "scikit-learn"


def test_data_get_refuses_a_data_set_without_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "get", "digits"]) == 1
    assert "digits: it comes from scikit-learn" in capsys.readouterr().err


def test_eval_measures_the_test_split_and_saves_the_result(run: Path, answer: Answer) -> None:
    result = answer(["eval", str(run)])
    assert (result["split"], result["samples"]) == ("test", 360)
    assert [layer["layer"] for layer in result["layers"]] == [0, 1]
    assert result["accuracy"] > 0.5
    assert result["scale_from"] == "validation"
    written = json.loads((run / "eval-test.json").read_text())
    assert {"run": str(run), **written} == result


def test_eval_on_validation_equals_the_summary(run: Path, answer: Answer) -> None:
    result = answer(["eval", str(run), "--split", "validation"])
    summary = json.loads((run / "summary.json").read_text())
    assert {str(r["layer"]): r["accuracy"] for r in result["layers"]} == summary["validation_accuracy"]
    assert (run / "eval-validation.json").exists()


def test_eval_shows_layers_and_confusions(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "accuracy", "top-5", "bits"]
    assert lines[4].startswith("test: ")
    assert lines[5].startswith("balanced accuracy (mean recall of the classes): ")
    assert lines[9].split() == ["class", "samples", "precision", "recall", "F1"]
    assert [line.split()[0] for line in lines[10:20]] == list("0123456789")
    assert max(map(len, lines)) <= 80
    matrix = [line.split() for line in lines[-10:]]
    assert [row[0] for row in matrix] == list("0123456789")
    assert sum(int(cell) for row in matrix for cell in row[1:] if cell != ".") == 360


def evaluation(classes: list[str], mistakes: dict[tuple[int, int], int]) -> Evaluation:
    matrix = np.eye(len(classes), dtype=int) * 7
    for cell, count in mistakes.items():
        matrix[cell] = count
    rows = tuple(map(tuple, matrix.tolist()))
    return Evaluation("test", int(matrix.sum()), tuple(classes), 0.9, None, (), rows, "train")


def test_precision_recall_and_f1_are_those_of_scikit_learn(capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluation(["a", "b", "c", "d"], {(0, 1): 3, (2, 1): 2, (3, 3): 0})
    pairs = [(i, j) for i in range(4) for j in range(4) for _ in range(result.confusion[i][j])]
    true, predicted = zip(*pairs, strict=True)
    expected = precision_recall_fscore_support(true, predicted, labels=range(4), zero_division=0)
    found = [(each.precision, each.recall, each.f1, each.samples) for each in result.per_class]
    np.testing.assert_allclose(np.array(found), np.stack(expected, 1))
    assert result.balanced_accuracy == pytest.approx(balanced_accuracy_score(true, predicted))
    assert result.to_json()["balanced_accuracy"] == result.balanced_accuracy


def test_of_many_classes_those_with_the_lowest_f1_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluation([f"class{i}" for i in range(30)], {(3, 4): 2, (5, 6): 9})
    show_classes(result.to_json()["per_class"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "The 10 of 30 classes with the lowest F1 (--json shows all):"
    assert {line.split()[0] for line in lines[3:7]} == {"class3", "class4", "class5", "class6"}
    assert len(lines) == 13


def test_negative_bits_are_explained(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = {"layer": 0, "accuracy": 0.1, "top5": None, "bits": -0.3}
    answer = {"layers": [layer], "split": "test", "accuracy": 0.1, "balanced_accuracy": 0.1, "samples": 5}
    _show({**answer, "scale_from": "train"})
    assert "negative: the scores predict the class worse than its frequency does" in capsys.readouterr().out


def test_long_class_names_are_numbered_in_the_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    show_confusions(evaluation(["airplane", "cat", "dog"], {(1, 2): 3}))
    _, header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["true", "\\", "predicted", "0", "1", "2"]
    assert rows[1].split() == ["1", "cat", ".", "7", "3"]


def test_with_many_classes_the_most_confused_pairs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_confusions(evaluation([f"class{i}" for i in range(30)], {(3, 4): 2, (5, 6): 9}))
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows] == [["class5", "class6", "9"], ["class3", "class4", "2"]]


def test_training_and_evaluation_on_an_npz_file(answer: Answer) -> None:
    labels = np.arange(120) % 3
    x = np.random.default_rng(0).normal(size=(120, 5)) + 3 * labels[:, None]
    np.savez("mine.npz", x=x[:90], y=labels[:90], x_test=x[90:], y_test=labels[90:])
    run = answer(["train", *TINY, "--data", "npz", "--data.path", "mine.npz", "--epochs", "20"])["run"]
    config = yaml.safe_load(Path(run, "config.yaml").read_text())
    assert config["data"]["path"] == str(Path.cwd() / "mine.npz")
    result = answer(["eval", run])
    assert result["samples"] == 30
    assert result["top5"] is None
    assert result["accuracy"] > 0.6


def test_a_terminal_shows_the_progress_of_a_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def get(name: str, data_dir: Path | None, on_progress: Callable[[str, int, int | None], None]) -> Path:
        on_progress("images.gz", 500_000, None)
        on_progress("images.gz", 1_000_000, 2_000_000)
        return tmp_path

    terminal = Terminal()
    monkeypatch.setattr("hff.data.get", get)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert fetch("mnist", None, quiet=False) == tmp_path
    assert "images.gz" in terminal.getvalue()
    assert "1.0/2.0 MB" in terminal.getvalue()


def test_seeds_are_resumed_and_evaluated_together(
    group: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(["train", "--resume", str(group)])["seeds"] == [0, 1]
    result = answer(["eval", str(group)])
    assert set(result["accuracy"]) == {"mean", "std"}
    for command in (["eval", str(group)], ["train", "--resume", str(group)]):
        assert main(command) == 0
        assert "±" in capsys.readouterr().out


def test_predict_prints_the_prediction_of_each_layer(run: Path, images: Path, answer: Answer) -> None:
    predictions = answer(["predict", str(run), str(images), str(images / "b.png")])["predictions"]
    names = [Path(each["file"]).relative_to(images).as_posix() for each in predictions]
    assert names == ["a.png", "b.png", "more/c.png", "b.png"]
    for each in predictions:
        assert [layer["layer"] for layer in each["layers"]] == [0, 1]
        assert each["layers"][-1]["class"] == each["class"] in "0123456789"
        assert each["layers"][-1]["score"] == pytest.approx(each["score"], abs=1e-5)


def test_predict_writes_csv_and_a_table(run: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(run), str(images), "--out", "answer.csv"]) == 0
    assert capsys.readouterr().out == "3 predictions are in answer.csv\n"
    rows = list(csv.DictReader(Path("answer.csv").read_text().splitlines()))
    assert list(rows[0])[:5] == ["file", "class", "probability", "score", "layer 0 class"]
    assert rows[0]["layer 1 class"] == rows[0]["class"]
    assert rows[0]["layer 1 probability"] == rows[0]["probability"]
    assert main(["predict", str(run), str(images / "a.png")]) == 0
    header = capsys.readouterr().out.split()[:7]
    assert header == ["file", "class", "probability", "layer", "0", "layer", "1"]


@pytest.mark.parametrize(
    ("path", "message", "code"),
    [
        ("images/notes.txt", "cannot be read as an image", 1),
        ("nowhere.png", "There is no file or folder nowhere.png.", 2),
        ("empty", "The folder empty contains no images.", 2),
    ],
)
def test_predict_refuses_missing_and_unreadable_images(
    path: str, message: str, code: int, run: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    assert main(["predict", str(run), path]) == code
    assert message in capsys.readouterr().err


def test_wide_tables_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    layers = [f"layer {i}" for i in range(16)]
    path = "a/very/long/path/to/an/image/in/a/folder/of/a/folder/that/is/deep/and/deeper/image.png"
    write_table(["file", "class", *layers], [[path, "dog", *layers]], optional=layers[:-1], paths=["file"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:2])) <= 80
    assert lines[1].split()[0].startswith("…")
    assert lines[1].split()[0].endswith("/image.png")
    assert lines[1].endswith("layer 15")
    assert lines[-1].endswith("--json shows everything.")
    write_table(["name", "description"], [["a", "word " * 40]])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count("word") for line in lines) == 40


@pytest.mark.parametrize(
    "command",
    [
        "list methods",
        "list networks",
        "list datasets",
        "list recipes",
        "data list",
        "train",
        "predict",
        "eval",
    ],
)
def test_ascii_output_is_not_an_error(
    command: str, run: Path, group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"train": [*TINY], "predict": [str(run), str(run)], "eval": [str(group)]}
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    assert main([*command.split(), *given.get(command, [])]) == 0
    printed = output.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert printed
    assert command != "eval" or "mean ~ standard deviation" in printed


def test_a_warning_is_one_line_and_those_of_pillow_about_large_images_are_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["hff", "--version"])
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        main()
        warnings.warn(
            "Image size (100000000 pixels) exceeds limit of 89478485 pixels, could be ...",
            DecompressionBombWarning,
            stacklevel=1,
        )
        warnings.warn("Something else.", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "hff: Something else.\n"


def test_an_interrupt_during_imports_is_one_line() -> None:
    # The signal comes from inside, once `main` is imported, so its moment does not depend on the load.
    program = """
import os, signal, sys, threading
from hff.cli import main
sys.argv = ["hff", "list", "methods"]
timer = threading.Timer(float(sys.stdin.read()), os.kill, (os.getpid(), signal.SIGINT))
timer.daemon = True
timer.start()
sys.exit(main())
"""
    for seconds in ("0.1", "0.5"):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, input=seconds, capture_output=True, text=True, check=False, timeout=60)
        # If the interrupt met code that a library runs, Python itself ends by the signal: 130 to a shell.
        assert done.returncode in (130, -signal.SIGINT, 0), done.stderr
        assert done.stderr == ("hff: Interrupted.\n" if done.returncode else "")


INTERRUPTED_IMPORT = """
import os, signal, sys
class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
before = set(sys.modules)
from hff.cli import main
assert set(sys.modules) - before == {"hff", "hff.cli"}
sys.meta_path.insert(0, Interrupter())
sys.exit(main(["list", "methods"]))
"""


@pytest.mark.parametrize("module", ["hff.cli.command", "argparse", "hff.formatting", "hff.cli.listing"])
def test_an_interrupt_during_the_imports_of_the_command_is_one_line(module: str) -> None:
    """Nothing is imported before `main`, and it catches an interrupt from the first import on."""
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stderr, done.returncode) == ("hff: Interrupted.\n", 130)


def test_a_closed_pipe_is_not_an_error() -> None:
    command = [sys.executable, "-m", "hff", "list", "recipes"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert err == ""
    assert process.returncode == 141


def test_eval_takes_new_labeled_data(run: Path, answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "samples", "scans"])
    for digit, name in (("8", "eight"), ("3", "three")):
        Path("labeled", digit).mkdir(parents=True)
        Path("scans", f"{name}.png").rename(Path("labeled", digit, f"{name}.png"))
    capsys.readouterr()
    result = answer(["eval", str(run), "--data.path", "labeled"])
    assert (result["split"], result["samples"]) == ("all", 2)
    assert main(["eval", str(run), "--data.path", "labeled"]) == 0
    printed = capsys.readouterr().out
    assert "all examples: " in printed
    # Classes without examples and predictions are left out.
    table = printed[printed.index("class  samples") : printed.index("true \\")]
    assert {"3", "8"} <= {line.split()[0] for line in table.splitlines()[1:] if line} < set("0123456789")


def test_predict_shows_the_next_classes_rows_and_notes(
    run: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["data", "samples", "scans"])
    capsys.readouterr()
    assert main(["predict", str(run), "scans", "--top-k", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.split()[:4] == ["file", "class", "probability", "next"]
    assert "scans/seven-dark-on-white.png is much brighter" in printed
    assert max(map(len, printed.splitlines())) <= 80
    (seven,) = answer(["predict", str(run), "scans/seven-dark-on-white.png", "--invert", "--top-k", "3"])[
        "predictions"
    ]
    assert seven["note"] == ""
    assert len(seven["top"]) == 3
    assert seven["top"][0] == {"class": seven["class"], "probability": seven["probability"]}
    np.savez("rows.npz", x=np.zeros((2, 8, 8)))
    assert main(["predict", str(run), "rows.npz", "--out", "rows.csv", "--top-k", "2"]) == 0
    rows = list(csv.DictReader(Path("rows.csv").read_text().splitlines()))
    assert [row["row"] for row in rows] == ["0", "1"]
    assert set(rows[0]) >= {"class 2", "probability 2"}
