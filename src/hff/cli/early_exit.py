"""`hff eval --early-exit`: accuracy and speed if the first layer that is sure enough predicts."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hff.cli.output import write, write_json, write_table
from hff.cli.parsing import Parser, UsageError, configuring, dashed
from hff.formatting import percent

if TYPE_CHECKING:
    from hff.bench.early_exit import ExitReport

CALIBRATED = "calibrated"
"""The value of --early-exit without a threshold."""
EPSILON, DELTA = 0.005, 0.05


def add_exit_flags(parser: Parser) -> None:
    """Adds the flags of early exit."""
    parser.add_argument(
        "--early-exit",
        nargs="?",
        const=CALIBRATED,
        metavar="P",
        help="predict by the first layer that is sure enough, and report accuracy and speed: with a "
        "guarantee, or at a plain threshold P of the probability",
    )
    text = f"largest loss of accuracy that --early-exit may cause ({EPSILON})"
    parser.add_argument("--epsilon", type=float, metavar="X", help=text)
    text = f"probability that the loss is larger ({DELTA})"
    parser.add_argument("--delta", type=float, metavar="X", help=text)


def without_ambiguity(argv: Sequence[str]) -> list[str]:
    """The arguments with a value for every --early-exit, so that it does not take the run as its value."""
    arguments = dashed(argv)
    for i, argument in enumerate(arguments):
        if argument == "--early-exit" and _number(next(iter(arguments[i + 1 :]), "")) is None:
            arguments[i] = f"{argument}={CALIBRATED}"
    return arguments


def check_exit_flags(given: argparse.Namespace) -> None:
    """Turns the flags into a threshold or None, and fills in the defaults; refuses what does not fit."""
    calibrated = given.early_exit == CALIBRATED
    for name, default in (("epsilon", EPSILON), ("delta", DELTA)):
        share = getattr(given, name)
        if share is not None and not calibrated:
            raise UsageError(f"--{name} needs --early-exit without a threshold; add it, or remove --{name}.")
        if share is not None and not 0 < share < 1:
            raise UsageError(f"--{name} must be between 0 and 1, not {share:g}.")
        setattr(given, name, default if share is None else share)
    given.threshold = None if calibrated or given.early_exit is None else _probability(given.early_exit)


def _probability(text: str) -> float:
    threshold = _number(text)
    if threshold is None or not 0 < threshold < 1:
        raise UsageError(f"--early-exit takes a probability between 0 and 1, or no value, not {text!r}.")
    return threshold


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def show_early_exit(given: argparse.Namespace, machine: dict[str, Any]) -> None:
    """Evaluates early exit of a run and shows the result."""
    from hff.bench.early_exit import early_exit_report
    from hff.prediction import open_run

    with configuring():
        run = open_run(given.run)
    report = early_exit_report(
        run, given.threshold, epsilon=given.epsilon, delta=given.delta, split=given.split, **machine
    )
    if given.json:
        write_json({"run": str(given.run), **report.to_json()})
    else:
        show_report(report)


def show_report(report: "ExitReport") -> None:
    """Shows the accuracies, the share of samples that leave at each layer, and the speed-up."""
    result, guarantee = report.evaluation, report.early_exit.guarantee
    *lower, top = result.shares
    write_table(
        ("layer", "predicts"),
        [
            *((str(layer), percent(result.shares[layer])) for layer in lower),
            (f"full network ({top})", percent(result.shares[top])),
        ],
    )
    name = "all examples" if result.split == "all" else result.split
    write(f"\n{name}: {percent(result.accuracy)} of {result.samples} samples with early exit")
    write(f"      {percent(result.full_accuracy)} with the full network")
    write(f"      {result.lost} correct predictions are lost, {result.gained} are gained\n")
    write_table(
        ("batch", "full network", "early exit", "speed-up"),
        [
            (speed.batch_size, _milliseconds(speed.full_seconds), _milliseconds(speed.early_seconds), ratio)
            for speed in report.speeds
            for ratio in [f"{speed.speed_up:.2f}"]
        ],
    )
    write("(time of one sample on this machine)\n")
    write(f"threshold: {_threshold(report.early_exit.threshold)}")
    if guarantee is not None and report.early_exit.threshold:
        write(f"      ({guarantee.lost} of {guarantee.samples} calibration samples are lost)")
        certain, loss = percent(1 - guarantee.delta), percent(guarantee.epsilon)
        write(f"guarantee: with probability {certain}, the loss of accuracy is at most {loss}")


def _threshold(threshold: float | Mapping[int, float]) -> str:
    if not isinstance(threshold, Mapping):
        return f"a probability of {threshold:g}, without a guarantee"
    if not threshold:
        return "none passed, so the full network predicts all samples"
    # The calibration chooses one threshold for all layers.
    return f"a probability of {max(threshold.values()):.6g}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f} ms"
