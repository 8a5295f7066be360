"""`hff bench compile`: what torch.compile costs and saves in a training step."""

import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from hff.bench.cost import Task, interleaved, random_batch, trained_stages, training_steps
from hff.bench.result import BenchResult, median, ratio
from hff.bench.step import BATCH_SIZE, CLASSES, METHODS, NETWORKS, using_threads
from hff.errors import unknown
from hff.methods import create_method
from hff.networks import create_network
from hff.training.settings import Settings

COMPILED = ("mlp 3x256", "mlp 3x500", "mlp 3x2000", "cnn 32-64-128")
WAYS = {
    "default": Settings(batch_size=BATCH_SIZE),
    "autograd": Settings(batch_size=BATCH_SIZE, closed_form=False),
    "compiled": Settings(batch_size=BATCH_SIZE, closed_form=False, compile=True),
}
"""The ways to train: what the library does by default, autograd everywhere, and all of that compiled."""


def bench_compile(
    networks: Sequence[str] = COMPILED,
    methods: Sequence[str] = METHODS,
    threads: Sequence[int] = (1,),
    *,
    rounds: int = 15,
    report: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Times training steps by default, by autograd alone, and compiled, all in turn in every round.

    `compile_seconds` is the time of the first compiled steps. Code that an earlier process
    compiled may come from the cache of torch.

    Args:
        networks: names in `bench.step.NETWORKS`.
        methods: methods to time.
        threads: numbers of threads.
        rounds: timed rounds.
        report: is told what is measured next.
    """
    if wrong := set(networks) - NETWORKS.keys():
        raise unknown("network", min(wrong), NETWORKS)
    rows: list[dict[str, Any]] = []
    for count in threads:
        with using_threads(count):
            for network, name in product(networks, methods):
                report(f"{name}, {network}, {count} thread{'s' * (count > 1)}")
                rows.append(_row(network, name, count, rounds))
    return BenchResult("compile", tuple(rows))


def _row(network: str, name: str, threads: int, rounds: int) -> dict[str, Any]:
    table, in_shape, options, steps = NETWORKS[network]
    batches = [random_batch(in_shape, CLASSES, BATCH_SIZE, step=step) for step in range(steps)]
    tasks: dict[str, Task] = {}
    for way, settings in WAYS.items():
        method = create_method(name, create_network(table, in_shape, CLASSES, **options), CLASSES)
        stage = trained_stages(method, settings)[0]
        tasks[way] = training_steps(method, stage, settings, batches)
        begun = time.perf_counter()
        tasks[way]()
        first = time.perf_counter() - begun
    seconds = interleaved(tasks, rounds, warm_up=2)
    return {
        "network": network,
        "threads": threads,
        "method": name,
        "compile_seconds": first,
        **{f"ms_{way}": median([1e3 * each / steps for each in seconds[way]]) for way in WAYS},
        "ratio_to_default": ratio(seconds["compiled"], seconds["default"]),
        "ratio_to_autograd": ratio(seconds["compiled"], seconds["autograd"]),
        "rounds": rounds,
    }
