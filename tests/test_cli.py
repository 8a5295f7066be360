"""The command line, in this process; a command runs on its own only where nothing else shows the truth."""

import csv
import errno
import io
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from hff import __version__
from hff.cli import VERBS, main
from hff.cli.data import fetch
from hff.cli.evaluate import show_confusions
from hff.data import datasets
from hff.display import LineDisplay
from hff.errors import UserError
from hff.evaluation import Evaluation
from hff.methods import methods
from hff.networks import networks
from hff.recipes import recipes

TINY = ["--network.widths", "32,16", "--epochs", "1"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "--network.widths", "48,32", "--epochs", "6", "--quiet", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "group"
    assert main(["train", *TINY, "--seeds", "0,1", "--quiet", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    for name in ("b.png", "a.png", "more/c.png"):
        Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10)).save(folder / name)
    (folder / "notes.txt").write_text("no image")
    return folder


Answer = Callable[[list[str]], Any]


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Answer:
    """Runs a command with --json and gives its one document."""

    def ask(argv: list[str]) -> Any:
        assert main([*argv, "--json"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return json.loads(printed.out)

    return ask


def test_help_is_fast_and_imports_nothing_slow() -> None:
    code = (
        "import sys; from hff.cli import main; main(['--help']); "
        "slow = {'torch', 'sklearn', 'rich', 'yaml', 'numpy'} & set(sys.modules); assert not slow, slow"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert all(f"  {verb}" in done.stdout for verb in VERBS)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"usage: hff {verb}" in capsys.readouterr().out


def test_version_and_no_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hff {__version__}\n"
    assert main([]) == 0
    assert "usage" in capsys.readouterr().out


def test_train_help_shows_the_chosen_parts_with_the_values_of_the_recipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["train", "paper_mnist_cnn", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--method.temperature X tau of the scores" in shown
    assert "--network.channels N,N output channels" in shown
    assert "(32,64)" in shown
    assert "(150)" in shown
    assert "--network.widths" not in shown
    main(["train", "--method", "backprop", "--help"])
    shown = capsys.readouterr().out
    assert "--method.head flatten|pool" in shown
    assert "--method.temperature" not in shown


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian"], "Unknown verb 'trian'; did you mean 'train'?"),
        (
            ["train", "--method.temprature", "3"],
            "'--method.temprature'; did you mean '--method.temperature'?",
        ),
        (["train", "--epoch", "3"], "Unknown flag '--epoch'; did you mean '--epochs'?"),
        (["train", "--epoch=3"], "Unknown flag '--epoch'; did you mean '--epochs'?"),
        (["train", "--epochs", "x"], "epochs must be a whole number, not 'x'."),
        (["train", "--epochs"], "Argument --epochs: expected one argument; see `hff train --help`."),
        (["train", "--method", "hf"], "Unknown method 'hf'; did you mean 'hff'?"),
        (["train", "--method.loss", "margin"], "method.loss must be one of smooth_margin, cross_entropy"),
        (["train", "mnist_mpl"], "Unknown recipe 'mnist_mpl'; did you mean 'mnist_mlp'?"),
        (["train", "mine.yaml"], "The recipe mine.yaml cannot be read: No such file or directory."),
        (["train", "digits", "digits"], "Unexpected argument 'digits'"),
        (["train", "--device", "abacus"], "Device 'abacus' is not available here"),
        (["train", "--seed", "1", "--seeds", "1,2"], "either --seed or --seeds"),
        (["train", "--seeds", "1,x"], "--seeds must be a list of whole numbers"),
        (["train", "--seeds", "1,1"], "Give each seed once"),
        (["train", "--resume", "nowhere"], "nowhere is no run folder"),
        (
            ["train", "--resume", "nowhere", "--epochs", "3"],
            "takes all settings from the run; leave 'epochs' out",
        ),
        (["train", "--resume", "nowhere", "digits"], "leave 'digits' out"),
        (["train", "--network", "vgg11"], "needs images of 32x32 pixels"),
        (["train", "--data", "folder"], "needs a path"),
        (["list", "method"], "Unknown list 'method'; did you mean 'methods'?"),
        (["list"], "The following arguments are required"),
        (["data", "fetch"], "Unknown action 'fetch'"),
        (["data", "get"], "Say which data set to get"),
        (["data", "get", "mnits"], "Unknown data set 'mnits'; did you mean 'mnist'?"),
        (["eval", "nowhere"], "nowhere is no run folder"),
        (["eval", "nowhere", "--split", "tset"], "Argument --split: invalid choice: 'tset'"),
        (["predict", "nowhere", "x.png"], "nowhere is no run folder"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error_and_code_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("hff: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert not list(Path().glob("runs/*/config.yaml"))


def test_underscores_and_dashes_are_one_flag(answer: Answer) -> None:
    summary = answer(
        ["train", "--network.widths=8", "--epochs", "1", "--batch_size", "100", "--data_dir", "x"]
    )
    config = yaml.safe_load((Path(summary["run"]) / "config.yaml").read_text())
    assert config["batch_size"] == 100


def test_list_answers_in_tables_and_in_json(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
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
        assert {line.split()[0] for line in lines[1:]} == set(registry)


def test_data_list_says_where_the_files_are(answer: Answer, tmp_path: Path) -> None:
    entries = {entry["name"]: entry for entry in answer(["data", "list", "--data-dir", str(tmp_path)])}
    assert set(entries) == set(datasets)
    assert entries["digits"]["source"] == "scikit-learn"


def test_data_get_refuses_what_has_no_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "get", "digits"]) == 1
    assert "nothing to fetch for digits" in capsys.readouterr().err


def test_train_tells_every_epoch_the_layers_the_folder_and_what_to_do_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "--network.widths", "16,16", "--epochs", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("runs/digits-seed0: 2 layers, ")
    assert [line.split("  ")[0] for line in printed[1:3]] == ["epoch 1/2", "epoch 2/2"]
    assert [line.split()[0] for line in printed[4:7]] == ["layer", "0", "1"]
    assert printed[-1].endswith("hff eval runs/digits-seed0")
    assert main(["train", *TINY, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("runs/digits-seed0-2/summary.json").exists()


def test_train_answers_in_json(answer: Answer) -> None:
    summary = answer(["train", *TINY, "--seed", "4"])
    assert summary["run"] == "runs/digits-seed4"
    assert set(summary["validation_accuracy"]) == {"0", "1"}


def test_flags_go_on_top_of_a_recipe_file_and_all_is_written_down(answer: Answer) -> None:
    Path("mine.yaml").write_text(
        "method: {name: hff, temperature: 5, lse: mean}\nnetwork: {widths: [8]}\nepochs: 1\n"
    )
    summary = answer(["train", "mine.yaml", "--method.temperature", "7", "--method.read-out", "-1"])
    assert summary["run"] == "runs/mine-seed0"
    config = yaml.safe_load(Path("runs/mine-seed0/config.yaml").read_text())
    method = config["method"]
    assert (method["temperature"], method["lse"], method["read_out"], method["grid"]) == (7.0, "mean", -1, 4)
    assert config["network"]["widths"] == [8]


def test_another_method_by_flag_drops_the_options_of_the_recipes(answer: Answer) -> None:
    Path("mine.yaml").write_text("method: {name: hff, temperature: 5}\nnetwork: {widths: [8]}\nepochs: 1\n")
    summary = answer(["train", "mine.yaml", "--method", "backprop"])
    assert summary["run"] == "runs/digits_mlp_backprop-seed0"
    config = yaml.safe_load(Path(summary["run"], "config.yaml").read_text())
    assert config["method"] == {"name": "backprop", "head": "flatten", "read_out": "last"}
    assert config["network"]["widths"] == [8]


def test_a_folder_in_use_is_left_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "config.yaml").read_text()
    assert main(["train", *TINY, "--out", str(run)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (run / "config.yaml").read_text() == before


def test_an_unwritable_folder_is_found_before_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("in the way")
    assert main(["train", *TINY, "--out", "file/run"]) == 1
    printed = capsys.readouterr()
    assert "The run folder file/run cannot be written (Not a directory); choose another" in printed.err
    assert "epoch" not in printed.out


def test_resume_of_a_finished_run_gives_its_summary(run: Path, answer: Answer) -> None:
    summary = answer(["train", "--resume", str(run)])
    assert summary == {"run": str(run), **json.loads((run / "summary.json").read_text())}


def test_eval_reads_the_test_split_and_writes_it_down(run: Path, answer: Answer) -> None:
    result = answer(["eval", str(run)])
    assert (result["split"], result["samples"]) == ("test", 360)
    assert [layer["layer"] for layer in result["layers"]] == [0, 1]
    assert result["accuracy"] > 0.5
    assert result["scale_from"] == "validation"
    written = json.loads((run / "eval-test.json").read_text())
    assert {"run": str(run), **written} == result


def test_eval_on_validation_is_what_the_training_saw(run: Path, answer: Answer) -> None:
    result = answer(["eval", str(run), "--split", "validation"])
    summary = json.loads((run / "summary.json").read_text())
    assert {str(r["layer"]): r["accuracy"] for r in result["layers"]} == summary["validation_accuracy"]
    assert (run / "eval-validation.json").exists()


def test_eval_shows_layers_and_confusions(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "accuracy", "top-5", "bits"]
    assert lines[4].startswith("test: ")
    matrix = [line.split() for line in lines[-10:]]
    assert [row[0] for row in matrix] == list("0123456789")
    assert sum(int(cell) for row in matrix for cell in row[1:] if cell != ".") == 360


def evaluation(classes: list[str], mistakes: dict[tuple[int, int], int]) -> Evaluation:
    matrix = np.eye(len(classes), dtype=int) * 7
    for cell, count in mistakes.items():
        matrix[cell] = count
    rows = tuple(map(tuple, matrix.tolist()))
    return Evaluation("test", int(matrix.sum()), tuple(classes), 0.9, None, (), rows, "train")


def test_long_class_names_are_numbered_in_the_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    show_confusions(evaluation(["airplane", "cat", "dog"], {(1, 2): 3}))
    _, header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["true", "\\", "predicted", "0", "1", "2"]
    assert rows[1].split() == ["1", "cat", ".", "7", "3"]


def test_of_many_classes_the_worst_pairs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_confusions(evaluation([f"class{i}" for i in range(30)], {(3, 4): 2, (5, 6): 9}))
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows] == [["class5", "class6", "9"], ["class3", "class4", "2"]]


def test_data_of_ones_own_from_training_to_eval(answer: Answer) -> None:
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


def test_missing_files_are_fetched_before_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(name: str, data_dir: Path | None, on_progress: object = None) -> None:
        raise UserError(f"{name} cannot be fetched to {data_dir}.")

    monkeypatch.setattr("hff.data.status", lambda name, data_dir: {"path": None, "source": "not found"})
    monkeypatch.setattr("hff.data.get", offline)
    assert main(["train", "mnist_mlp", "--data-dir", "here"]) == 2
    assert capsys.readouterr().err == "hff: mnist cannot be fetched to here.\n"


def test_a_terminal_sees_how_far_a_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_seeds_are_trained_resumed_and_evaluated_together(
    group: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(["train", "--resume", str(group)])["seeds"] == [0, 1]
    result = answer(["eval", str(group)])
    singles = [json.loads((group / f"seed-{seed}" / "eval-test.json").read_text()) for seed in (0, 1)]
    assert result["accuracy"]["mean"] == pytest.approx(sum(each["accuracy"] for each in singles) / 2)
    assert (group / "eval-test.json").exists()
    main(["eval", str(group)])
    assert "±" in capsys.readouterr().out
    main(["train", "--resume", str(group)])
    assert "±" in capsys.readouterr().out


def test_predict_gives_the_opinion_of_each_layer(run: Path, images: Path, answer: Answer) -> None:
    predictions = answer(["predict", str(run), str(images), str(images / "b.png")])["predictions"]
    names = [Path(each["file"]).relative_to(images).as_posix() for each in predictions]
    assert names == ["a.png", "b.png", "more/c.png", "b.png"]
    for each in predictions:
        assert [opinion["layer"] for opinion in each["layers"]] == [0, 1]
        assert each["layers"][-1]["class"] == each["class"] in "0123456789"
        assert each["layers"][-1]["score"] == pytest.approx(each["score"], abs=1e-5)


def test_predict_writes_csv_and_a_table(run: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(run), str(images), "--out", "answer.csv"]) == 0
    assert capsys.readouterr().out == "3 predictions are in answer.csv\n"
    rows = list(csv.DictReader(Path("answer.csv").read_text().splitlines()))
    assert list(rows[0])[:5] == ["file", "class", "score", "layer 0", "layer 0 score"]
    assert rows[0]["layer 1"] == rows[0]["class"]
    assert main(["predict", str(run), str(images / "a.png")]) == 0
    assert capsys.readouterr().out.split()[:6] == ["file", "class", "layer", "0", "layer", "1"]


@pytest.mark.parametrize(
    ("path", "message", "code"),
    [
        ("images/notes.txt", "cannot be read as an image", 1),
        ("nowhere.png", "There is no file or folder nowhere.png.", 2),
        ("empty", "The folder empty holds no images.", 2),
    ],
)
def test_predict_refuses_what_is_no_image(
    path: str, message: str, code: int, run: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    assert main(["predict", str(run), path]) == code
    assert message in capsys.readouterr().err


def test_an_interrupted_training_says_how_to_go_on_and_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LineDisplay, "epoch_ended", lambda self, record: signal.raise_signal(signal.SIGTERM))
        assert main(["train", "--network.widths", "16", "--epochs", "3"]) == 130
    printed = capsys.readouterr()
    assert printed.err == "hff: Stopped; go on with `hff train --resume runs/digits-seed0`.\n"
    assert main(["train", "--resume", "runs/digits-seed0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "resumed at" in lines[0]
    assert [line.split("  ")[0] for line in lines[1:3]] == ["epoch 2/3", "epoch 3/3"]


def test_an_interrupt_before_there_is_a_run_offers_nothing_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hff.experiment.load", interrupted)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "hff: Stopped.\n"


def test_a_failure_on_the_way_is_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: object, record: object) -> None:
        raise UserError("The loss is not finite any more.")

    monkeypatch.setattr(LineDisplay, "epoch_ended", fail)
    assert main(["train", *TINY]) == 1
    assert capsys.readouterr().err == "hff: The loss is not finite any more.\n"


def test_a_full_disk_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/x")

    monkeypatch.setattr("hff.training.run.Run.save", full)
    assert main(["train", *TINY]) == 1
    assert capsys.readouterr().err == "hff: No space left on device: runs/x\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "hff", "list", "recipes"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert err == ""
    assert process.returncode == 141
