"""`hff bench`: time and memory of training and prediction, beside backprop in the same run."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hff.cli.output import write, write_json, write_table
from hff.cli.parsing import Parser, UsageError, configuring

if TYPE_CHECKING:
    from hff.bench.result import BenchResult

KINDS = {
    "step": "time of a training step, beside backprop and the floor",
    "epoch": "time of an epoch from end to end, beside its steps alone",
    "memory": "peak memory and time against depth and batch size",
    "inference": "time of predictions for 10, 100 and 1000 classes",
    "convergence": "time and epochs to 95, 97 and 98 % on MNIST",
    "compile": "time of a training step with torch.compile",
}
COLUMNS = {
    "step": ("network", "threads", "method", "ms_per_step", "ratio_to_backprop", "ratio_to_floor"),
    "epoch": ("network", "threads", "method", "step_ratio", "epoch_ratio", "gain_kept"),
    "memory": ("convolutions", "batch_size", "contender", "peak_mb", "ratio_to_backprop", "time_ratio"),
    "inference": ("classes", "batch_size", "threads", "method", "ms_per_image", "ratio_to_hff"),
    "compile": ("network", "method", "compile_seconds", "ratio_to_default", "ratio_to_autograd"),
    "convergence": (
        "target",
        "method",
        "epochs",
        "seconds",
        "ratio_to_backprop",
        "ratio_to_reach",
    ),
}
"""The columns that fit a terminal; --json and the CSV file have all."""
HEADERS = {
    "memory": {"convolutions": "depth", "batch_size": "batch", "ratio_to_backprop": "of backprop"},
    "inference": {"batch_size": "batch", "ms_per_image": "ms/image"},
}
"""Shorter headers of some columns, so that names do not have to be broken at 80 characters."""


def main(argv: Sequence[str]) -> None:
    kinds = "; ".join(f"{kind}: {text}" for kind, text in KINDS.items())
    parser = Parser("bench", f"Measure time and memory, all methods in turn. {kinds}.")
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--rounds", type=int, metavar="N", help="timed rounds")
    parser.add_argument("--threads", metavar="N,N", help="numbers of threads (1,2)")
    parser.add_argument("--networks", metavar="A,B", help="networks of bench step, epoch and compile")
    parser.add_argument(
        "--methods", metavar="A,B", help="methods of bench step, epoch, convergence and compile"
    )
    parser.add_argument(
        "--data", metavar="NAME", help="data of bench epoch (random images) and convergence (mnist)"
    )
    parser.add_argument("--images", type=int, metavar="N", help="random images of bench epoch (60000)")
    parser.add_argument("--depths", metavar="N,N", help="depths of bench memory (2,4,8,16,32)")
    parser.add_argument("--classes", metavar="N,N", help="classes of bench inference (10,100,1000)")
    parser.add_argument("--widths", metavar="N,N", help="units of bench convergence (2000,2000,2000)")
    parser.add_argument("--seeds", metavar="N,N", help="seeds of bench convergence (0,1,2)")
    parser.add_argument("--rates", metavar="X,X", help="learning rates that bench convergence tries")
    parser.add_argument("--epochs", type=int, metavar="N", help="when bench convergence gives up (30)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for a CSV file and a figure; what bench convergence has finished is kept there as well",
    )
    parser.add_machine_flags(device=False)
    given = parser.read(argv)
    if given is None:
        return
    with configuring():
        options = _options(given)
        result = _run(given, options)
    if given.out:
        from hff.bench.figure import draw

        picture = draw(result, given.out)
        path = given.out / f"{result.name}.csv"
        path.write_text(result.to_csv(), encoding="utf-8")
        if not given.json:
            write(f"Wrote {path} and {picture}.\n")
    if given.json:
        write_json(result.to_json())
        return
    columns = COLUMNS[result.name]
    headers = HEADERS.get(result.name, {})
    write_table(
        [headers.get(name, name.replace("_", " ")) for name in columns],
        [_cells(row, columns) for row in result.rows],
    )
    write("\nTimes are medians on this machine. Compare ratios, which have 95 % intervals.")


def _run(given: Namespace, options: dict[str, Any]) -> "BenchResult":
    if given.kind == "step":
        from hff.bench.step import bench_steps

        return bench_steps(**options)
    if given.kind == "memory":
        from hff.bench.depth import bench_memory

        return bench_memory(**options)
    if given.kind == "inference":
        from hff.bench.inference import bench_inference

        return bench_inference(**options)
    if given.kind == "compile":
        from hff.bench.compiling import bench_compile

        return bench_compile(**options)
    from hff.data import load_data

    if given.kind == "epoch":
        from hff.bench.epoch import bench_epochs

        data = load_data(given.data, data_dir=given.data_dir) if given.data else None
        return bench_epochs(**options, data=data)
    from hff.bench.convergence import bench_convergence

    data = load_data(given.data or "mnist", data_dir=given.data_dir)
    return bench_convergence(data, **options, folder=given.out)


ALLOWED = {
    "step": ("rounds", "threads", "networks", "methods"),
    "compile": ("rounds", "threads", "networks", "methods"),
    "epoch": ("rounds", "threads", "networks", "methods", "images", "data"),
    "memory": ("rounds", "depths"),
    "inference": ("rounds", "threads", "classes"),
    "convergence": ("methods", "widths", "seeds", "rates", "epochs", "data"),
}
"""The flags of each kind."""


def _options(given: Namespace) -> dict[str, Any]:
    """The arguments of the function that measures, from the flags."""
    options: dict[str, Any] = {"report": _reporter(given.json)}
    for name in sorted({flag for flags in ALLOWED.values() for flag in flags}):
        value = getattr(given, name)
        if value is None:
            continue
        if name not in ALLOWED[given.kind]:
            raise UsageError(f"`hff bench {given.kind}` has no --{name}; remove it.")
        if name in ("networks", "methods"):
            options[name] = tuple(part.strip() for part in value.split(","))
        elif name == "rates":
            options[name] = _rates(value)
        elif isinstance(value, str) and name != "data":
            options[name] = _numbers(name, value)
        elif isinstance(value, int):
            options[name] = value
            if value < 1:
                raise UsageError(f"--{name} must be at least 1, not {value}.")
    if given.data and given.images:
        raise UsageError("--images is for random images; remove it, or remove --data.")
    return options


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--{name} must be a list of whole numbers such as 1,2, not {text!r}.") from None
    if name != "seeds" and min(numbers) < 1:
        raise UsageError(f"--{name} must be positive, not {text!r}.")
    return numbers


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = (0.0,)
    if not all(0 < rate < float("inf") for rate in rates):
        raise UsageError(f"--rates must be a list of positive numbers such as 1e-3,3e-3, not {text!r}.")
    return rates


def _reporter(quiet: bool) -> Callable[[str], None]:
    """Shows what is measured on a terminal."""
    if quiet or not sys.stderr.isatty():
        return lambda text: None

    def report(text: str) -> None:
        sys.stderr.write(f"\r\x1b[2Kmeasuring {text} ...")
        sys.stderr.flush()

    return report


def _cells(row: dict[str, Any], columns: Sequence[str]) -> list[str]:
    return [_cell(name, row.get(name)) for name in columns]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int | str):
        return str(value)
    # The intervals of ratios are what counts; those of times are in the CSV file.
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value) if "ratio" in name else f"{value.median:.3g}"
