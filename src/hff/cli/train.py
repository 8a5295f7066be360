"""`hff train`: flags from the signatures of the chosen method, network and data set, on top of a recipe."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from hff.cli.output import percent, write, write_json, write_table
from hff.cli.parsing import Parser, UsageError, configuring, dashed
from hff.errors import UserError

if TYPE_CHECKING:
    from hff.config import Field
    from hff.experiment import Experiment, Selection
    from hff.training import Listener

DEFAULT_RECIPE = "digits"
SWITCHES = frozenset({"--help", "--json", "--quiet"})
"""Flags without a value."""
OF_A_RESUME = frozenset({"resume", "device", "data_dir", "json", "quiet", "help", "recipe"})
"""What may be said when the settings come from the run."""


def main(argv: Sequence[str]) -> None:
    from hff.experiment import PARTS, Experiment, overridden
    from hff.recipes import read
    from hff.training import pick_device

    with configuring():
        spoken = spoken_choices(argv)
        settings = read(spoken.get("recipe", DEFAULT_RECIPE))
        named = {part: {"name": spoken[f"--{part}"]} for part in PARTS if f"--{part}" in spoken}
        parser = flags_of(Experiment.from_mapping(overridden(settings, named)))
        given = parser.read(argv)
        if given is None:
            return
        pick_device(given.device)
        if given.resume:
            refuse_settings(given)
            out = _existing(given.resume)
            experiment = None
        else:
            experiment = Experiment.from_mapping(overridden(settings, _changes(given)))
            out = given.out or free_folder(experiment, several=given.seeds is not None)
            if _begun(out):
                raise UsageError(f"{out} holds a run already: --resume {out}, or choose another --out.")
    summary = _train(experiment, out, given)
    _answer(summary, out, given)


def spoken_choices(argv: Sequence[str]) -> dict[str, str]:
    """The recipe and the values of all flags, before it is known which flags there are."""
    spoken: dict[str, str] = {}
    waiting = None
    for argument in dashed(argv):
        flag, equals, value = argument.partition("=")
        if argument.startswith("--"):
            waiting = None if equals or flag in SWITCHES else flag
            if equals:
                spoken[flag] = value
        elif waiting:
            spoken[waiting] = argument
            waiting = None
        elif not argument.startswith("-"):
            spoken.setdefault("recipe", argument)
    return spoken


def flags_of(experiment: "Experiment") -> Parser:
    """The parser for the method, network and data set of an experiment; its values are the defaults."""
    from hff.config import fields_of
    from hff.experiment import PARTS, SCALARS
    from hff.training import Settings

    parser = Parser(
        "train", "Train a method. Flags go on top of the recipe; what they replace is in brackets."
    )
    parser.usage = "hff train [RECIPE] [--flag value ...]"
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="from `hff list recipes`, or a YAML file")
    parser.add_machine_flags()
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors")
    run = parser.add_argument_group("run")
    run.add_argument("--out", type=Path, metavar="DIR", help="run folder (a new one in runs/)")
    run.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with a run, or with runs of several seeds"
    )
    run.add_argument("--seeds", metavar="N,N", help="train once from each of these seeds")
    for field in SCALARS:
        add_field(run, field, field.name, getattr(experiment, field.name))
    training = parser.add_argument_group("training")
    for field in fields_of(Settings):
        add_field(training, field, field.name, getattr(experiment.training, field.name))
    for part in PARTS:
        add_part(parser, part, getattr(experiment, part))
    return parser


def add_part(parser: Parser, part: str, choice: "Selection") -> None:
    """The flags of a method, network or data set, and the one that chooses another."""
    from hff.experiment import PARTS

    about = PARTS[part]
    group = parser.add_argument_group(f"{about.kind} {choice.name}")
    text = f"{', '.join(sorted(about.registry))} ({choice.name})"
    group.add_argument(f"--{part}", metavar="NAME", default=argparse.SUPPRESS, help=text)
    for field in about.fields(choice.name):
        add_field(group, field, f"{part}.{field.name}", choice.options[field.name])


def free_folder(experiment: "Experiment", several: bool) -> Path:
    """A folder in runs/ that does not exist yet, named after the experiment."""
    name = f"{experiment.name}-seeds" if several else f"{experiment.name}-seed{experiment.seed}"
    folder, number = Path("runs", name), 1
    while folder.exists():
        number += 1
        folder = Path("runs", f"{name}-{number}")
    return folder


def add_field(group: argparse._ArgumentGroup, field: "Field", key: str, value: Any) -> None:
    """A flag for a setting; its value is in brackets behind the help."""
    from hff.config import shown

    text = f"{field.help.removesuffix('.')} ({shown(value)})".strip().replace("%", "%%")
    flag = "--" + key.replace("_", "-")
    group.add_argument(flag, dest=key, metavar=metavar(field.type), default=argparse.SUPPRESS, help=text)


def metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return "N,N"
    if get_args(kind):
        return "|".join(metavar(part) for part in get_args(kind))
    return {int: "N", float: "X", bool: "true|false", Path: "PATH", NoneType: "none"}.get(kind, "TEXT")


def _changes(given: argparse.Namespace) -> dict[str, Any]:
    """What the flags set, as a recipe would have it."""
    from hff.config import fields_of
    from hff.experiment import PARTS, SCALARS
    from hff.training import Settings

    if given.seeds is not None and "seed" in given:
        raise UsageError("Give either --seed or --seeds, not both.")
    changes: dict[str, Any] = {}
    top = {field.name for field in (*SCALARS, *fields_of(Settings))}
    for key, value in vars(given).items():
        part, dot, option = key.partition(".")
        if key in top:
            changes[key] = value
        elif part in PARTS:
            changes.setdefault(part, {})[option if dot else "name"] = value
    return changes


def _seeds(text: str) -> tuple[int, ...]:
    from hff.config import Field

    seeds: tuple[int, ...] = Field("seeds", tuple[int, ...], (), "").parse(text, "--seeds")
    return seeds


def refuse_settings(given: argparse.Namespace) -> None:
    """Nothing but the machine may be said about what is resumed."""
    said = [key for key, value in vars(given).items() if value is not None and key not in OF_A_RESUME]
    if getattr(given, "recipe", None) is not None:
        said.append(given.recipe)
    if said:
        raise UsageError(f"--resume takes all settings from the run; leave {said[0]!r} out.")


def _existing(folder: Path) -> Path:
    from hff.run_group import is_group
    from hff.training import Run

    return folder if is_group(folder) else Run.open(folder).folder


def _train(experiment: "Experiment | None", out: Path, given: argparse.Namespace) -> dict[str, Any]:
    from hff.cli.display import display
    from hff.experiment import resume, train
    from hff.run_group import create_group, is_group, train_group
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
                create_group(out, experiment, _seeds(given.seeds))
            if is_group(out):
                return train_group(out, listener=listener, **machine)
            if experiment is not None:
                return train(experiment, out, listener=listener(), **machine)
            return resume(Run.open(out), listener=listener(), **machine)
        except KeyboardInterrupt:
            hint = f"; go on with `hff train --resume {out}`" if _begun(out) else ""
            raise KeyboardInterrupt(f"Stopped{hint}.") from None
        except UserError as error:
            # Where no run came into being there is something to mend first.
            raise error if _begun(out) else UsageError(str(error)) from error
        except OSError as error:
            if _begun(out) or error.strerror is None:
                raise
            raise UserError(
                f"The run folder {out} cannot be written ({error.strerror}); choose another with --out."
            ) from error


def fetch_data(choice: "Selection", data_dir: Path | None, quiet: bool) -> None:
    """Fetches files that are missing: loading would do so too, but could not show how far they are."""
    from hff.cli.data import fetch
    from hff.data import status
    from hff.data.fetching.sources import sources

    missing = choice.name in sources and status(choice.name, data_dir)["path"] is None
    if missing and choice.options["path"] is None:
        fetch(choice.name, data_dir, quiet)


def _begun(out: Path) -> bool:
    from hff.run_group import is_group, runs

    return bool(runs(out)) if is_group(out) else (out / "config.yaml").exists()


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
    write(f"\nThe run is in {out}; measure it on the test split: hff eval {out}")
