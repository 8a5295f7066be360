"""`hff train`: train a recipe, with flags for every setting of its method, network and data set."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.flags import add_field, add_part, fetch_data, refuse_settings, scan_arguments, settings_in
from hff.cli.output import percent, write, write_json, write_table
from hff.cli.parsing import Parser, UsageError, configuring
from hff.errors import UserError

if TYPE_CHECKING:
    from hff.experiment import Experiment
    from hff.training import Listener

DEFAULT_RECIPE = "digits"


def main(argv: Sequence[str]) -> None:
    from hff.experiment import PARTS, Experiment, overridden
    from hff.recipes import read
    from hff.training import pick_device

    with configuring():
        scanned = scan_arguments(argv)
        recipe = read(scanned.get("recipe", DEFAULT_RECIPE))
        named = {part: {"name": scanned[f"--{part}"]} for part in PARTS if f"--{part}" in scanned}
        parser = flags_of(Experiment.from_mapping(overridden(recipe, named)))
        given = parser.read(argv)
        if given is None:
            return
        pick_device(given.device)
        if given.resume:
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
    summary = _train(experiment, out, given)
    _answer(summary, out, given)


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
    run.add_argument("--resume", type=Path, metavar="RUN", help="resume a run, or the runs of several seeds")
    run.add_argument("--seeds", metavar="N,N", help="train once with each of these seeds")
    for field in SCALARS:
        add_field(run, field, field.name, getattr(experiment, field.name))
    training = parser.add_argument_group("training")
    for field in fields_of(Settings):
        add_field(training, field, field.name, getattr(experiment.training, field.name))
    for part in PARTS:
        add_part(parser, part, getattr(experiment, part))
    return parser


def free_folder(experiment: "Experiment", several: bool) -> Path:
    """A folder in runs/ that does not exist yet, named after the experiment."""
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


def _check_exists(folder: Path) -> None:
    from hff.run_group import RunGroup
    from hff.training import Run

    if not RunGroup.exists(folder):
        Run.open(folder)


def _has_runs(folder: Path) -> bool:
    from hff.run_group import RunGroup
    from hff.training import Run

    return bool(RunGroup(folder).runs()) if RunGroup.exists(folder) else Run.exists(folder)


def _train(experiment: "Experiment | None", out: Path, given: argparse.Namespace) -> dict[str, Any]:
    from hff.cli.display import display
    from hff.experiment import resume, train
    from hff.run_group import RunGroup
    from hff.training import Run

    quiet = given.quiet or given.json
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
                return RunGroup(out).train(listener=listener, **machine)
            if experiment is not None:
                return train(experiment, out, listener=listener(), **machine)
            return resume(Run.open(out), listener=listener(), **machine)
        except KeyboardInterrupt:
            hint = f"; resume with `hff train --resume {out}`" if _has_runs(out) else ""
            raise KeyboardInterrupt(f"Interrupted{hint}.") from None
        except UserError as error:
            # If no run was started, the command line is at fault.
            raise error if _has_runs(out) else UsageError(str(error)) from error
        except OSError as error:
            if _has_runs(out) or error.strerror is None:
                raise
            raise UserError(
                f"The run folder {out} cannot be written ({error.strerror}); choose another with --out."
            ) from error


def _answer(summary: dict[str, Any], out: Path, given: argparse.Namespace) -> None:
    if given.json:
        write_json({"run": str(out), **summary})
        return
    if given.quiet:
        return
    from hff.cli.display import accuracies

    accuracy = accuracies(summary)
    if accuracy:
        rows = [(layer, percent(share)) for layer, share in accuracy.items()]
        write()
        write_table(("layer", "validation accuracy"), rows)
    write(f"\nThe run is in {out}. Evaluate it on the test split with: hff eval {out}")
