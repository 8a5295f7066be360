"""Where the time of a training step goes: python benchmarks/profile_step.py

Writes two files to results/bench, both measured on one thread with batches of 128 random inputs:

- profile.csv: the operations that take most of a step of HFF and of backprop, on the smallest MLP and on the
  CNN of `hff bench step`, as torch's profiler counts them, and what is left for Python.
- head.csv: the time and the parameters of a step of HFF's CNN with smaller heads, relative to backprop.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from hff.bench.cost import Task, interleaved, random_batch, trained_stages, training_steps
from hff.bench.result import median, ratio
from hff.bench.step import BATCH_SIZE, CLASSES, NETWORKS
from hff.methods import create_method
from hff.networks import create_network
from hff.training import Settings

FOLDER = Path(__file__).parent.parent / "results" / "bench"
PROFILED = {"mlp 3x256": 100, "cnn 32-64-128": 10}
"""The networks and the steps that are profiled."""
SHOWN = 14
ROUNDS = 15
HEADS: dict[str, dict[str, Any]] = {
    "hidden 256": {"head_hidden": 256},
    "hidden 128 (default)": {},
    "hidden 64": {"head_hidden": 64},
    "no hidden layer": {"head_hidden": 0},
    "no hidden layer, grid 1 (paper)": {"head_hidden": 0, "grid": 1},
}


def main() -> None:
    torch.set_num_threads(1)
    write("profile.csv", [row for network in PROFILED for row in profiled(network)])
    write("head.csv", list(heads()))


def profiled(network: str) -> Iterator[dict[str, Any]]:
    """The most expensive operations of both methods on a network."""
    for name in ("hff", "backprop"):
        steps = PROFILED[network]
        _, task = steps_of(name, network, steps)
        task()
        with profile(activities=[ProfilerActivity.CPU]) as found:
            task()
        by_time = sorted(found.key_averages(), key=lambda each: -each.self_cpu_time_total)
        common = {"network": network, "method": name}
        for each in by_time[:SHOWN]:
            yield {
                **common,
                "operation": each.key,
                "calls_per_step": round(each.count / steps, 1),
                "ms_per_step": round(each.self_cpu_time_total / steps / 1e3, 4),
            }
        rest = by_time[SHOWN:]
        yield {
            **common,
            "operation": "all other operations",
            "calls_per_step": round(sum(each.count for each in rest) / steps, 1),
            "ms_per_step": round(sum(each.self_cpu_time_total for each in rest) / steps / 1e3, 4),
        }


def heads() -> Iterator[dict[str, Any]]:
    """The step of HFF with each head, in turn with backprop."""
    network = "cnn 32-64-128"
    backprop = steps_of("backprop", network, 1)
    others = {name: steps_of("hff", network, 1, **options) for name, options in HEADS.items()}
    tasks = {"backprop": backprop[1], **{name: task for name, (_, task) in others.items()}}
    seconds = interleaved(tasks, ROUNDS, warm_up=2)
    for name, (parameters, _) in {"backprop": backprop, **others}.items():
        yield {
            "head": name,
            "parameters": parameters,
            "ms_per_step": f"{1e3 * median(seconds[name]).median:.1f}",
            "ratio_to_backprop": str(ratio(seconds[name], seconds["backprop"])),
            "rounds": ROUNDS,
        }


def steps_of(name: str, network: str, steps: int, **options: Any) -> tuple[int, Task]:
    """The number of parameters of a method, and a task that takes training steps with it."""
    table, in_shape, widths, _ = NETWORKS[network]
    method = create_method(name, create_network(table, in_shape, CLASSES, **widths), CLASSES, **options)
    settings = Settings(batch_size=BATCH_SIZE)
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
