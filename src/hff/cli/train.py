"""`hff train`: train a recipe, with flags for every setting of its method, network and data set."""

import argparse
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.flags import (
    CHOSEN_BATCH_SIZE,
    add_field,
    add_part,
    fetch_data,
    refuse_settings,
    scan_arguments,
    settings_in,
)
from hff.cli.output import program, write, write_json, write_table
from hff.cli.parsing import Parser, UsageError, configuring
from hff.errors import UserError
from hff.formatting import percent, sparkline

if TYPE_CHECKING:
    from hff.experiment import Experiment
    from hff.training import Listener

DEFAULT_RECIPE = "digits"
RESUME = (
    "resume a run, or the runs of several seeds; with --epochs N, train on to N epochs, also if the run is "
    "finished (the learning rate schedule is recomputed for N epochs)"
)
LONGEST_NAME = 100


def main(argv: Sequence[str]) -> None:
    from hff.data import datasets
    from hff.experiment import PARTS, Experiment, overridden
    from hff.recipes import read
    from hff.training import pick_device

    with configuring():
        scanned = scan_arguments(argv)
        recipe = read(scanned.get("recipe", DEFAULT_RECIPE))
        if "recipe" not in scanned and "--data" in scanned:
            # The network of the default recipe is for digits; the data set knows which one suits it.
            recipe["network"] = {"name": datasets.find(scanned["--data"]).network}
            # So is its batch size; without it, one is chosen for the data.
            recipe.pop("batch_size", None)
        named = {part: {"name": scanned[f"--{part}"]} for part in PARTS if f"--{part}" in scanned}
        parser = flags_of(Experiment.from_mapping(overridden(recipe, named)))
        given = parser.read(argv)
        if given is None:
            return
        pick_device(given.device)
        epochs = None
        if given.resume:
            epochs = _epochs(given)
            refuse_settings(given)
            experiment, out = None, given.resume
            _check_exists(out)
        else:
            if given.seeds is not None and "seed" in given:
                raise UsageError("Give either --seed or --seeds, not both.")
            experiment = Experiment.from_mapping(overridden(recipe, settings_in(given)))
            out = given.out or free_folder(experiment, several=given.seeds is not None)
            if _has_runs(out):
                raise UsageError(
                    f"{out} already contains a run; resume it with --resume {out}, or choose another --out."
                )
    finished = experiment is None and epochs is None and _is_finished(out)
    summary = _train(experiment, out, given, epochs)
    if not finished:
        _draw(out)
    _answer(summary, out, given, finished)


def flags_of(experiment: "Experiment") -> Parser:
    """The parser for the method, network and data set of an experiment, whose values are the defaults."""
    from hff.config import fields_of
    from hff.experiment import PARTS, SCALARS
    from hff.training import Settings

    parser = Parser(
        "train",
        "Train a recipe. Each flag replaces one of its settings; the value in the recipe is in parentheses.",
    )
    parser.usage = "hff train [RECIPE] [--flag value ...]"
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="from `hff list recipes`, or a YAML file")
    parser.add_machine_flags()
    parser.add_argument("--quiet", action="store_true", help="show only errors")
    run = parser.add_argument_group("run")
    run.add_argument("--out", type=Path, metavar="DIR", help="run folder (a new one in runs/)")
    run.add_argument("--resume", type=Path, metavar="RUN", help=RESUME)
    run.add_argument("--seeds", metavar="N,N", help="train once with each of these seeds")
    for field in SCALARS:
        add_field(run, field, field.name, getattr(experiment, field.name))
    training = parser.add_argument_group("training")
    for field in fields_of(Settings):
        value = getattr(experiment.training, field.name)
        if field.name == "batch_size" and experiment.chooses_batch_size:
            value = CHOSEN_BATCH_SIZE
        add_field(training, field, field.name, value)
    for part in PARTS:
        add_part(parser, part, getattr(experiment, part))
    return parser


def free_folder(experiment: "Experiment", several: bool) -> Path:
    """A folder in runs/ that does not exist yet, named after the experiment."""
    given = experiment.name
    if (
        given in (".", "..")
        or not given.isprintable()
        or set(given) & set("/\\")
        or len(given) > LONGEST_NAME
    ):
        raise UsageError(
            f"The name of a run must be the name of a folder, not {given[:LONGEST_NAME]!r}; change `name`."
        )
    name = f"{experiment.name}-seeds" if several else f"{experiment.name}-seed{experiment.seed}"
    folder, number = Path("runs", name), 1
    while folder.exists():
        number += 1
        folder = Path("runs", f"{name}-{number}")
    return folder


def _seeds(text: str) -> tuple[int, ...]:
    from hff.config import Field

    seeds: tuple[int, ...] = Field("seeds", tuple[int, ...], (), "").parse(text, "--seeds")
    return seeds


def _epochs(given: argparse.Namespace) -> int | None:
    """The value of --epochs beside --resume, which is removed from the flags."""
    from hff.config import fields_of
    from hff.training import Settings

    if "epochs" not in given:
        return None
    field = next(field for field in fields_of(Settings) if field.name == "epochs")
    epochs: int = field.parse(given.epochs, "--epochs")
    del given.epochs
    return epochs


def _is_finished(folder: Path) -> bool:
    from hff.run_group import RunGroup
    from hff.training import Run

    if not RunGroup.exists(folder):
        return Run(folder).finished
    group = RunGroup(folder)
    runs = group.runs()
    return len(runs) == len(group.seeds) and all(run.finished for run in runs.values())


def _draw(folder: Path) -> None:
    """Draws the curves of each run, if matplotlib is installed and the disk is not full."""
    from hff.run_group import RunGroup
    from hff.training import Run
    from hff.training.curves import draw_curves

    runs = RunGroup(folder).runs().values() if RunGroup.exists(folder) else [Run(folder)]
    with suppress(UserError, OSError):
        for run in runs:
            draw_curves(run)


def _check_exists(folder: Path) -> None:
    from hff.run_group import RunGroup
    from hff.training import Run

    if not RunGroup.exists(folder):
        Run.open(folder)


def _has_runs(folder: Path) -> bool:
    from hff.run_group import RunGroup
    from hff.training import Run

    return bool(RunGroup(folder).runs()) if RunGroup.exists(folder) else Run.exists(folder)


def _train(
    experiment: "Experiment | None", out: Path, given: argparse.Namespace, epochs: int | None
) -> dict[str, Any]:
    from hff.data import DataWarning
    from hff.experiment import resume, train
    from hff.run_group import RunGroup
    from hff.training import Run
    from hff.training.display import display

    quiet = given.quiet or given.json
    if not quiet:
        # The display shows these warnings with the description of the data.
        warnings.simplefilter("ignore", DataWarning)
    machine: dict[str, Any] = {"data_dir": given.data_dir, "device": given.device}
    with ExitStack() as stack:

        def listener(seed: int | None = None) -> "Listener":
            stack.close()
            title = str(out) if seed is None else f"{out}, seed {seed}"
            return stack.enter_context(display(title, quiet=quiet))

        try:
            if experiment is not None:
                fetch_data(experiment.data, given.data_dir, quiet)
            if experiment is not None and given.seeds is not None:
                RunGroup.create(out, experiment, _seeds(given.seeds))
            if RunGroup.exists(out):
                return RunGroup(out).train(listener=listener, epochs=epochs, **machine)
            if experiment is not None:
                return train(experiment, out, listener=listener(), **machine)
            return resume(Run.open(out), listener=listener(), epochs=epochs, **machine)
        except KeyboardInterrupt:
            hint = f"; resume with `{program()} train --resume {out}`" if _has_runs(out) else ""
            raise KeyboardInterrupt(f"Interrupted{hint}.") from None
        except UserError as error:
            # If no run was started, the command line is at fault.
            raise error if _has_runs(out) else UsageError(str(error)) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(error, out) from error


def _unwritable(error: OSError, out: Path) -> UserError:
    """The error if the run folder cannot be written, for example because the disk is full."""
    reason = error.strerror or str(error).rstrip(".")
    if not _has_runs(out):
        return UserError(f"The run folder {out} cannot be written ({reason}); choose another with --out.")
    command = f"`{program()} train --resume {out}`"
    if any(out.rglob("checkpoint.safetensors")):
        return UserError(f"{reason}. The last checkpoint is safe: fix the cause, and resume with {command}.")
    return UserError(f"{reason}. There is no checkpoint yet: fix the cause, and start again with {command}.")


def _answer(summary: dict[str, Any], out: Path, given: argparse.Namespace, finished: bool) -> None:
    if given.json:
        write_json({"run": str(out), **summary})
        return
    if given.quiet:
        return
    from hff.training import Run
    from hff.training.display import accuracies

    if finished:
        more = f"{program()} train --resume {out} --epochs N"
        write(f"{out} is already finished. Train on to N epochs with: {more}")
    accuracy = accuracies(summary)
    if accuracy:
        curves = _sparklines(out) if sys.stdout.isatty() else {}
        rows = [(layer, percent(share), curves.get(layer)) for layer, share in accuracy.items()]
        write()
        if curves:
            write_table(("layer", "validation accuracy", "over the epochs"), rows)
        else:
            write_table(("layer", "validation accuracy"), [row[:2] for row in rows])
    write(f"\nThe run is in {out}. Evaluate it on the test split with: {program()} eval {out}")
    if Run.exists(out):
        write(f"Classify new data with: {program()} predict {out} FILE")
    write(f"A page about it with all figures: {program()} report {out}")


def _sparklines(folder: Path) -> dict[str, str]:
    """The accuracy of each layer over the epochs as a line of bars; empty for runs with several seeds."""
    from hff.training import Run
    from hff.training.curves import accuracy_curves

    if not Run.exists(folder):
        return {}
    curves = accuracy_curves(Run(folder).metrics())
    return {
        name.removeprefix("layer "): sparkline([accuracy for _, accuracy in points])
        for name, points in curves.items()
    }
