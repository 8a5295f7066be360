"""`hff train`, and what all verbs share. Commands run in this process where possible."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hff import __version__
from hff.cli import main
from hff.cli.command import VERBS
from hff.cli.output import program
from hff.errors import UserError
from hff.formatting import BARS
from hff.training.display import LineDisplay
from hff.training.lock import FolderLock

TINY = ["--network.widths", "32,16", "--epochs", "1"]
Answer = Callable[[list[str]], Any]


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
    shown = capsys.readouterr().out
    assert "usage" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_batch_size_of_the_default_recipe_is_for_its_own_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["train", "--data", "folder", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "mini-batch (8 to 128, depending on the number of training examples)" in shown
    np.savez("table.npz", x=np.random.default_rng(0).normal(size=(100, 4)), y=np.arange(100) % 2)
    command = ["train", "--data", "npz", "--data.path", "table.npz", "--epochs", "1", "--network.widths", "4"]
    assert main(command) == 0
    assert "The batch size for 72 examples is 8" in capsys.readouterr().out
    assert yaml.safe_load(Path("runs/npz_mlp_hff-seed0/config.yaml").read_text())["batch_size"] == 8
    assert main([*command, "--out", "large", "--batch-size", "64"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "batches of 64 are large for 72 examples" in shown
    assert "The batch size for" not in shown


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
        (["train", "--seeds", "1,1"], "each seed once"),
        (["train", "--resume", "nowhere"], "nowhere is not a run folder"),
        (
            ["train", "--resume", "nowhere", "--batch-size", "3"],
            "takes all settings from the folder; remove 'batch_size'.",
        ),
        (["train", "--resume", "nowhere", "digits"], "remove 'digits'."),
        (["train", "--resume", "nowhere", "--epochs", "x"], "--epochs must be a whole number"),
        (["train", "--name", "../../x"], "must be the name of a folder, not '../../x'"),
        (["train", "--name", ".."], "must be the name of a folder, not '..'"),
        (["train", "--out", "a\0b"], "'a\\x00b' contains characters that are not text"),
        (["train", "--out", "a\udcff"], "contains characters that are not text"),
        (["train", "x.csv"], "x.csv is not a recipe"),
        (["train", "x.csv"], "`--data npz --data.path FILE` for arrays"),
        (["train", "x.npz"], "use `hff train --data npz --data.path x.npz`"),
        (["train", "."], "use `hff train --data folder --data.path .`"),
        (["train", "qqq"], "Unknown recipe 'qqq'; choose one of: "),
        (["train", "--network.dropout", "1.5"], "dropout must be at least 0 and below 1, not 1.5."),
        (["train", "--network.widths", "10000000000"], "choose a smaller network."),
        (["train", "--data.size", "100000"], "choose a smaller size."),
        (["train", "--data.validation", "1.0"], "write a share below 1, such as 0.1"),
        (["train", "--network", "vgg11"], "needs images of 32x32 pixels"),
        (["train", "--data", "folder"], "needs a path"),
        (["list", "method"], "Unknown list 'method'; did you mean 'methods'?"),
        (["list"], "The following arguments are required"),
        (["data", "fetch"], "Unknown action 'fetch'"),
        (["data", "get"], "Say which data set to get"),
        (["data", "get", "mnits"], "Unknown data set 'mnits'; did you mean 'mnist'?"),
        (["eval", "nowhere"], "nowhere is not a run folder"),
        (["eval", "nowhere", "--split", "tset"], "Argument --split: invalid choice: 'tset'"),
        (["predict", "nowhere", "x.png"], "nowhere is not a run folder"),
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


def test_flags_may_have_underscores_or_dashes(answer: Answer) -> None:
    summary = answer(
        ["train", "--network.widths=8", "--epochs", "1", "--batch_size", "100", "--data_dir", "x"]
    )
    config = yaml.safe_load((Path(summary["run"]) / "config.yaml").read_text())
    assert config["batch_size"] == 100


def test_train_prints_epochs_layers_and_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "--network.widths", "16,16", "--epochs", "2"]) == 0
    described, _, printed_text = capsys.readouterr().out.partition("\n\n")
    assert described.startswith("digits: 1,797 images in 10 classes")
    printed = printed_text.splitlines()
    assert printed[0].startswith("runs/digits-seed0: 2 layers, ")
    assert [line.split("  ")[0] for line in printed[1:3]] == ["epoch 1/2", "epoch 2/2"]
    assert [line.split()[0] for line in printed[4:7]] == ["layer", "0", "1"]
    assert printed[-3].endswith("hff eval runs/digits-seed0")
    assert printed[-2].endswith("hff predict runs/digits-seed0 FILE")
    assert printed[-1].endswith("hff report runs/digits-seed0")
    assert main(["train", *TINY, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("runs/digits-seed0-2/summary.json").exists()


def test_train_answers_in_json(answer: Answer) -> None:
    summary = answer(["train", *TINY, "--seed", "4"])
    assert summary["run"] == "runs/digits-seed4"
    assert set(summary["validation_accuracy"]) == {"0", "1"}


def test_flags_override_a_recipe_file_and_the_config_has_all_settings(answer: Answer) -> None:
    Path("mine.yaml").write_text(
        "method: {name: hff, temperature: 5, lse: mean}\nnetwork: {widths: [8]}\nepochs: 1\n"
    )
    summary = answer(["train", "mine.yaml", "--method.temperature", "7", "--method.read-out", "-1"])
    assert summary["run"] == "runs/mine-seed0"
    config = yaml.safe_load(Path("runs/mine-seed0/config.yaml").read_text())
    method = config["method"]
    assert (method["temperature"], method["lse"], method["read_out"], method["grid"]) == (7.0, "mean", -1, 4)
    assert config["network"]["widths"] == [8]


def test_selecting_another_method_drops_the_options_of_the_recipe(answer: Answer) -> None:
    Path("mine.yaml").write_text("method: {name: hff, temperature: 5}\nnetwork: {widths: [8]}\nepochs: 1\n")
    summary = answer(["train", "mine.yaml", "--method", "backprop"])
    assert summary["run"] == "runs/digits_mlp_backprop-seed0"
    config = yaml.safe_load(Path(summary["run"], "config.yaml").read_text())
    assert config["method"] == {
        "name": "backprop",
        "head": "flatten",
        "checkpointing": False,
        "read_out": "last",
    }
    assert config["network"]["widths"] == [8]


def test_a_folder_with_a_run_is_not_overwritten(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "config.yaml").read_text()
    assert main(["train", *TINY, "--out", str(run)]) == 2
    assert "already contains a run" in capsys.readouterr().err
    assert (run / "config.yaml").read_text() == before


def test_an_unwritable_folder_is_reported_before_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("in the way")
    assert main(["train", *TINY, "--out", "file/run"]) == 1
    printed = capsys.readouterr()
    assert "The run folder file/run cannot be written (Not a directory); choose another" in printed.err
    assert "epoch" not in printed.out


def test_resuming_a_finished_run_prints_its_summary(run: Path, answer: Answer) -> None:
    summary = answer(["train", "--resume", str(run)])
    assert summary == {"run": str(run), **json.loads((run / "summary.json").read_text())}


def test_missing_files_are_downloaded_before_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(name: str, data_dir: Path | None, on_progress: object = None) -> None:
        raise UserError(f"{name} cannot be downloaded to {data_dir}.")

    monkeypatch.setattr("hff.data.needs_download", lambda *_: True)
    monkeypatch.setattr("hff.data.get", offline)
    assert main(["train", "mnist_mlp", "--data-dir", "here"]) == 2
    assert capsys.readouterr().err == "hff: mnist cannot be downloaded to here.\n"


def test_an_interrupted_training_prints_the_command_that_resumes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LineDisplay, "epoch_ended", lambda self, record: signal.raise_signal(signal.SIGTERM))
        assert main(["train", "--network.widths", "16", "--epochs", "3"]) == 130
    printed = capsys.readouterr()
    assert printed.err == "hff: Interrupted; resume with `hff train --resume runs/digits-seed0`.\n"
    assert main(["train", "--resume", "runs/digits-seed0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "resumed at" in lines[0]
    assert [line.split("  ")[0] for line in lines[1:3]] == ["epoch 2/3", "epoch 3/3"]


def test_an_interrupt_before_the_run_starts_offers_nothing_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hff.experiment.load_data", interrupted)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "hff: Interrupted.\n"


def test_a_failure_during_training_is_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: object, record: object) -> None:
        raise UserError("The loss is not finite.")

    monkeypatch.setattr(LineDisplay, "epoch_ended", fail)
    assert main(["train", *TINY]) == 1
    assert capsys.readouterr().err == "hff: The loss is not finite.\n"


def test_a_full_disk_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/x")

    monkeypatch.setattr("hff.training.run.Run.save", full)
    assert main(["train", *TINY]) == 1
    command = "`hff train --resume runs/digits-seed0`"
    message = f"There is no checkpoint yet: fix the cause, and start again with {command}."
    assert capsys.readouterr().err == f"hff: No space left on device. {message}\n"


def test_a_full_disk_after_a_checkpoint_says_that_it_is_safe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: object, record: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LineDisplay, "epoch_ended", full)
        assert main(["train", *TINY[:-1], "2"]) == 1
    assert "The last checkpoint is safe: fix the cause, and resume with" in capsys.readouterr().err
    assert main(["train", "--resume", "runs/digits-seed0", "--quiet"]) == 0


def test_a_recipe_whose_name_is_a_path_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("inside").mkdir()
    os.chdir("inside")
    Path("mine.yaml").write_text("name: ../../x\nnetwork: {widths: [8]}\nepochs: 1\n")
    assert main(["train", "mine.yaml"]) == 2
    assert "must be the name of a folder" in capsys.readouterr().err
    assert [path.name for path in Path("..").rglob("*")] == ["inside", "mine.yaml"]


def test_resuming_a_finished_run_says_so_and_more_epochs_train_it_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", *TINY, "--out", "here", "--quiet"]) == 0
    assert main(["train", "--resume", "here"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("here is already finished. Train on to N epochs with: hff train --resume here")
    assert "validation accuracy" in printed
    assert main(["train", "--resume", "here", "--epochs", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["epoch 2/3", "epoch 3/3"]
    assert json.loads(Path("here/summary.json").read_text())["epochs"] == 3
    assert main(["train", "--resume", "here", "--epochs", "2"]) == 1
    assert "is trained for 3 epochs" in capsys.readouterr().err


def test_a_second_process_cannot_resume_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    for seeds in ([], ["--seeds", "1,2"]):
        with FolderLock(Path("here")):
            assert main(["train", *TINY, "--out", "here", *seeds]) in (1, 2)
        error = capsys.readouterr().err
        assert error == "hff: Another process is writing to here; wait until it ends, or stop it.\n"


def test_training_leaves_a_picture_of_the_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["train", *TINY, "--out", "here", "--quiet"]) == 0
    assert Path("here/curves.png").read_bytes().startswith(b"\x89PNG")
    assert main(["train", *TINY, "--out", "group", "--seeds", "1,2", "--quiet"]) == 0
    assert sorted(path.parent.name for path in Path("group").glob("*/curves.png")) == ["seed-1", "seed-2"]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["train", *TINY, "--out", "without", "--quiet"]) == 0
    assert not Path("without/curves.png").exists()


def test_a_terminal_keeps_a_curve_of_each_layer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *TINY[:-1], "3", "--out", "here", "--quiet"]) == 0
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["train", "--resume", "here"]) == 0
    rows = capsys.readouterr().out.splitlines()[-6:-4]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert all(len(row.split()[-1]) == 3 and set(row.split()[-1]) <= set(BARS) for row in rows)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_out_of_memory_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("hff.experiment.load_data", fail)
    assert main(["train"]) == 1
    assert capsys.readouterr().err.startswith("hff: There is not enough memory; ")


def test_a_config_that_does_not_fit_the_checkpoint_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", *TINY, "--out", "here", "--quiet"]) == 0
    config = Path("here/config.yaml")
    config.write_text(config.read_text().replace("- 32", "- 33"))
    assert main(["eval", "here"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "does not fit its config: " in error
    assert "shape [32, 64], not [33, 64]" in error


def test_messages_show_the_path_of_the_program_if_it_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = Path(".venv/bin/hff")
    installed.parent.mkdir(parents=True)
    installed.touch(mode=0o755)
    for given in (".venv/bin/hff", str(installed.absolute())):
        monkeypatch.setattr(sys, "argv", [given, "train"])
        assert program() == ".venv/bin/hff"
    monkeypatch.setenv("PATH", str(installed.parent.absolute()))
    assert program() == "hff"
    monkeypatch.setattr(sys, "argv", ["hff/__main__.py", "train"])
    assert program() == "hff"
    monkeypatch.setenv("PATH", "")
    assert program().endswith(" -m hff")
