"""`hff bench step`: the time of a training step of several methods, beside backprop and the floor."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from hff.bench.cost import Task, interleaved, random_batch, trained_stages, training_steps
from hff.bench.result import BenchResult, median, ratio
from hff.errors import unknown
from hff.methods import create_method
from hff.networks import Shape, create_network
from hff.training.settings import Settings

BATCH_SIZE, CLASSES = 128, 10
METHODS = ("backprop", "hff", "mono_forward", "ff")
Sizes = dict[str, tuple[str, Shape, dict[str, Any], int]]
NETWORKS: Sizes = {
    "mlp 3x256": ("mlp", (784,), {"widths": (256,) * 3}, 30),
    "mlp 3x500": ("mlp", (784,), {"widths": (500,) * 3}, 10),
    "mlp 3x2000": ("mlp", (784,), {"widths": (2000,) * 3}, 1),
    "cnn 32-64-128": ("cnn", (3, 32, 32), {"channels": (32, 64, 128)}, 1),
    "vgg11": ("vgg11", (3, 32, 32), {}, 1),
}
"""The table, input shape and options of each network, and the steps that are timed together."""
FLOOR = "floor of "


def bench_steps(
    networks: Sequence[str] = tuple(NETWORKS),
    methods: Sequence[str] = METHODS,
    threads: Sequence[int] = (1, 2),
    *,
    rounds: int = 15,
    report: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Times training steps with a batch of 128 random inputs, all methods in turn in every round.

    The floor of an MLP is the time of the matrix products and of the optimizer that the method cannot do
    without, measured in the same rounds.

    Args:
        networks: names in `NETWORKS`.
        methods: methods to time; ratios are to backprop, which is always timed.
        threads: numbers of threads.
        rounds: timed rounds.
        report: is told what is measured next.
    """
    if wrong := set(networks) - NETWORKS.keys():
        raise unknown("network", min(wrong), NETWORKS)
    names = list(dict.fromkeys(["backprop", *methods]))
    rows: list[dict[str, Any]] = []
    for count in threads:
        with using_threads(count):
            for network in networks:
                report(f"{network}, {count} thread{'s' * (count > 1)}")
                rows += _rows(network, names, count, rounds)
    return BenchResult("step", tuple(rows))


def _rows(network: str, names: Sequence[str], threads: int, rounds: int) -> Iterator[dict[str, Any]]:
    table, in_shape, options, steps = NETWORKS[network]
    tasks: dict[str, Task] = {}
    parameters: dict[str, int] = {}
    for name in names:
        method = create_method(name, create_network(table, in_shape, CLASSES, **options), CLASSES)
        settings = Settings(batch_size=BATCH_SIZE)
        batches = [random_batch(in_shape, CLASSES, BATCH_SIZE, step=step) for step in range(steps)]
        tasks[name] = training_steps(method, trained_stages(method, settings)[0], settings, batches)
        parameters[name] = sum(p.numel() for p in method.parameters())
        if table == "mlp" and name in ("backprop", "hff"):
            widths = (in_shape[0], *options["widths"])
            tasks[FLOOR + name] = repeated(floor(widths, is_local=name == "hff"), steps)
    seconds = interleaved(tasks, rounds, warm_up=2)
    for name in names:
        times, floors = seconds[name], seconds.get(FLOOR + name)
        yield {
            "network": network,
            "threads": threads,
            "method": name,
            "parameters": parameters[name],
            "ms_per_step": median([1e3 * each / steps for each in times]),
            "ratio_to_backprop": ratio(times, seconds["backprop"]),
            "ratio_to_floor": ratio(times, floors) if floors else None,
            "rounds": rounds,
        }


def floor(widths: Sequence[int], *, is_local: bool) -> Task:
    """The matrix products and the optimizer of one step of an MLP with these widths, input first.

    Both rules need the products of the forward pass and of the gradients of the weights. Backprop also needs
    the gradients of the activities, except that of the input, and a classifier. A local rule needs scores in
    every layer, with their gradients.
    """
    batch = BATCH_SIZE
    products: list[tuple[torch.Tensor, torch.Tensor]] = []
    sizes: list[int] = []
    for layer, (inputs, units) in enumerate(pairwise(widths)):
        x, w, d = torch.randn(batch, inputs), torch.randn(units, inputs), torch.randn(batch, units)
        products += [(x, w.T), (d.T, x)] + ([(d, w)] if layer and not is_local else [])
        sizes.append(w.numel() + units)
    for units in widths[1:] if is_local else widths[-1:]:
        h, v, s = torch.randn(batch, units), torch.randn(CLASSES, units), torch.randn(batch, CLASSES)
        products += [(v, h.T), (s.T, h), (s, v)]
        sizes.append(v.numel())
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def run() -> None:
        for left, right in products:
            torch.mm(left, right)
        optimizer.step()

    return run


def repeated(task: Task, times: int) -> Task:
    """A task that runs another one several times."""

    def run() -> None:
        for _ in range(times):
            task()

    return run


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Sets the number of torch's threads, and restores it at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
