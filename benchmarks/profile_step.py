"""Where the time of a training step goes: python benchmarks/profile_step.py

Writes two files to results/bench, both measured on one and on two threads with batches of 128 random inputs:

- profile.csv: the operations that take most of a step of HFF and of backprop, on the smallest MLP and on the
  CNN of `hff bench step`, as torch's profiler counts them, and what is left for Python.
- variants.csv: the time and the parameters of a step of HFF's CNN, relative to backprop, with other heads and
  without parts of the fast path.
"""

import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from hff.bench.cost import Task, interleaved, random_batch, trained_stages, training_steps
from hff.bench.result import median, ratio
from hff.bench.step import BATCH_SIZE, CLASSES, NETWORKS, using_threads
from hff.methods import create_method
from hff.networks import affine, create_network
from hff.training import Settings

FOLDER = Path(__file__).parent.parent / "results" / "bench"
PROFILED = {"mlp 3x256": 100, "cnn 32-64-128": 10}
"""The networks and the steps that are profiled."""
SHOWN = 14
THREADS = (1, 2)
ROUNDS = 15
WHOLE, AUTOGRAD = "gradient of the map as a whole", "by autograd"
VARIANTS: dict[str, dict[str, Any]] = {
    "default (head with 128 hidden units)": {},
    "head with 256 hidden units": {"head_hidden": 256},
    "head with 64 hidden units": {"head_hidden": 64},
    "head without hidden layer": {"head_hidden": 0},
    "head without hidden layer, grid 1 (paper)": {"head_hidden": 0, "grid": 1},
    WHOLE: {},
    AUTOGRAD: {},
}


def main() -> None:
    profiles: list[dict[str, Any]] = []
    variants: list[dict[str, Any]] = []
    for threads in THREADS:
        with using_threads(threads):
            profiles += [{"threads": threads} | row for network in PROFILED for row in profiled(network)]
            variants += [{"threads": threads} | row for row in measured_variants()]
    write("profile.csv", profiles)
    write("variants.csv", variants)


def profiled(network: str) -> Iterator[dict[str, Any]]:
    """The most expensive operations of both methods on a network."""
    for name in ("hff", "backprop"):
        steps = PROFILED[network]
        _, task = steps_of(name, network, steps)
        for _ in range(3):
            task()
        started = time.perf_counter()
        task()
        seconds = (time.perf_counter() - started) / steps
        with profile(activities=[ProfilerActivity.CPU]) as found:
            task()
        by_time = sorted(found.key_averages(), key=lambda each: -each.self_cpu_time_total)
        rows = [(each.key, each.count, each.self_cpu_time_total / 1e3) for each in by_time[:SHOWN]]
        rest = by_time[SHOWN:]
        others = sum(each.count for each in rest), sum(each.self_cpu_time_total for each in rest) / 1e3
        rows.append(("all other operations", *others))
        for operation, calls, milliseconds in rows:
            yield {
                "network": network,
                "method": name,
                "ms_per_step_unprofiled": f"{1e3 * seconds:.3f}",
                "operation": operation,
                "calls_per_step": round(calls / steps, 1),
                "ms_per_step": f"{milliseconds / steps:.4f}",
            }


def measured_variants() -> Iterator[dict[str, Any]]:
    """The step of HFF in each variant, in turn with backprop."""
    network = "cnn 32-64-128"
    found = {"backprop": steps_of("backprop", network, 1)}
    for name, options in VARIANTS.items():
        parameters, task = steps_of("hff", network, 1, closed_form=name != AUTOGRAD, **options)
        found[name] = parameters, in_one_part(task) if name == WHOLE else task
    seconds = interleaved({name: task for name, (_, task) in found.items()}, ROUNDS, warm_up=2)
    for name, (parameters, _) in found.items():
        yield {
            "variant": name,
            "parameters": parameters,
            "ms_per_step": f"{1e3 * median(seconds[name]).median:.1f}",
            "ratio_to_backprop": str(ratio(seconds[name], seconds["backprop"])),
            "rounds": ROUNDS,
        }


def in_one_part(task: Task) -> Task:
    """The same task, but the gradient of a map is not computed in parts."""

    def run() -> None:
        limit, affine.PART = affine.PART, sys.maxsize
        try:
            task()
        finally:
            affine.PART = limit

    return run


def steps_of(
    name: str, network: str, steps: int, *, closed_form: bool = True, **options: Any
) -> tuple[int, Task]:
    """The number of parameters of a method, and a task that takes training steps with it."""
    table, in_shape, widths, _ = NETWORKS[network]
    method = create_method(name, create_network(table, in_shape, CLASSES, **widths), CLASSES, **options)
    settings = Settings(batch_size=BATCH_SIZE, closed_form=closed_form)
    batches = [random_batch(in_shape, CLASSES, BATCH_SIZE, step=step) for step in range(steps)]
    task = training_steps(method, trained_stages(method, settings)[0], settings, batches)
    return sum(p.numel() for p in method.parameters()), task


def write(name: str, rows: list[dict[str, Any]]) -> None:
    with (FOLDER / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    sys.stdout.write(f"wrote {FOLDER / name}\n")


if __name__ == "__main__":
    main()
