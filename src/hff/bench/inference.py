"""`hff bench inference`: the time of predictions, one pass for HFF and C passes for Forward-Forward."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from hff.bench.cost import Task, interleaved, random_batch
from hff.bench.result import BenchResult, median, ratio
from hff.bench.step import repeated, using_threads
from hff.evaluation.accuracy import evaluation_mode
from hff.methods import Method, create_method
from hff.methods.families.pairs import PairMethod, with_every_label
from hff.networks import create_network

IN_FEATURES, WIDTHS = 3072, (2000, 2000, 2000)
"""The paper's network for CIFAR-100."""
IMAGES = 10_000
"""The number of images of the paper's column of total times."""
PAIRS = 12_800
"""The most pairs of an image and a label that Forward-Forward is timed on: fewer images, or fewer labels.

With 1000 labels, 256 images would take minutes and gigabytes. The time is in proportion to the pairs.
"""
ONE_BY_ONE, BATCHED, SHARED = "ff, one by one", "ff, all labels", "ff, shared product"


def bench_inference(
    classes: Sequence[int] = (10, 100, 1000),
    batch_sizes: Sequence[int] = (1, 256),
    threads: Sequence[int] = (1, 2),
    *,
    rounds: int = 7,
    report: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Times predictions of an MLP of 3 x 2000 units on 3072 inputs; the total is for 10,000 images.

    Forward-Forward tries every class as the label: one after the other, all in one batch, or with the product
    of the image and the first layer computed once for all labels. It is timed on a share of a large batch.

    Args:
        classes: numbers of classes.
        batch_sizes: numbers of images per prediction.
        threads: numbers of threads.
        rounds: timed rounds.
        report: is told what is measured next.
    """
    rows: list[dict[str, Any]] = []
    for count in threads:
        with using_threads(count):
            for labels in classes:
                for size in batch_sizes:
                    report(f"{labels} classes, batch size {size}, {count} thread{'s' * (count > 1)}")
                    rows += _rows(labels, size, count, rounds)
    return BenchResult("inference", tuple(rows))


def _rows(classes: int, size: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    work = multiply_adds(classes)
    ways = _ways(classes, size)
    # Forward-Forward takes seconds where the others take milliseconds, so it is repeated less often.
    repeats = {
        name: min(100, max(1, round(3e8 / (work[name] * size * share)))) for name, (_, share) in ways.items()
    }
    timed = {name: repeated(task, repeats[name]) for name, (task, _) in ways.items()}
    seconds = {
        name: [each / repeats[name] / ways[name][1] for each in times]
        for name, times in interleaved(timed, rounds).items()
    }
    return [
        {
            "classes": classes,
            "batch_size": size,
            "threads": threads,
            "method": name,
            "ms_per_image": median([1e3 * each / size for each in seconds[name]]),
            "images_per_second": size / median(seconds[name]).median,
            "total_seconds": median(seconds[name]).median / size * IMAGES,
            "ratio_to_hff": ratio(seconds[name], seconds["hff"]),
            "multiply_adds_ratio": work[name] / work["hff"],
            "ratio_to_backprop": ratio(seconds[name], seconds["backprop"]),
            "measured_share": share,
            "rounds": rounds,
        }
        for name, (_, share) in ways.items()
    ]


def _ways(classes: int, size: int) -> dict[str, tuple[Task, float]]:
    """A task for each way to predict a batch, and the share of the batch that it computes."""
    network = create_network("mlp", (IN_FEATURES,), classes, widths=WIDTHS)
    x = random_batch((IN_FEATURES,), classes, size).x
    made = {name: create_method(name, network, classes).eval() for name in ("backprop", "hff", "ff")}
    # Both read the same weights: another place in memory alone can change the time by some percent.
    made["hff"].blocks = made["backprop"].blocks
    ff = made["ff"]
    assert isinstance(ff, PairMethod)
    labels = min(classes, max(1, PAIRS // size))
    part = x[: max(1, PAIRS // classes)]
    return {
        "backprop": (_task(made["backprop"], made["backprop"], x), 1.0),
        "hff": (_task(made["hff"], made["hff"], x), 1.0),
        ONE_BY_ONE: (_task(ff, lambda x: one_label_at_a_time(ff, x, labels), x), labels / classes),
        BATCHED: (_task(ff, lambda x: all_labels_at_once(ff, x), part), len(part) / size),
        SHARED: (_task(ff, ff, part), len(part) / size),
    }


def multiply_adds(classes: int) -> dict[str, float]:
    """Multiplications and additions of one prediction, for each way to predict."""
    first = IN_FEATURES * WIDTHS[0]
    others = sum(a * b for a, b in pairwise(WIDTHS))
    scores = WIDTHS[-1] * classes
    every = classes * (first + others)
    return {
        "backprop": first + others + scores,
        "hff": first + others + scores,
        ONE_BY_ONE: every,
        BATCHED: every,
        SHARED: first + classes * others,
    }


def one_label_at_a_time(ff: PairMethod, x: Tensor, count: int) -> Tensor:
    """The goodness [B, count] of the first classes as the label, computed one after the other."""
    labels = torch.arange(count)
    return torch.stack([_goodness(ff, ff.encoding(x, each.expand(len(x)))) for each in labels], 1)


def all_labels_at_once(ff: PairMethod, x: Tensor) -> Tensor:
    """The goodness [B, C] of each class as the label, computed as one batch."""
    inputs, _ = with_every_label(x, ff.encoding, ff.classes)
    return _goodness(ff, inputs).view(len(x), ff.classes)


def _goodness(ff: PairMethod, h: Tensor) -> Tensor:
    """The mean goodness [N] of the layers that predict, for labeled inputs [N, ...]."""
    found: dict[int, Tensor] = {}
    for layer in range(len(ff.blocks)):
        features = ff.features(layer, h)
        found[layer] = ff.goodness(layer, features)
        h = ff.next_input(layer, features, h)
    return ff.combine_scores(found)


def _task(method: Method, predict: Callable[[Tensor], Tensor], x: Tensor) -> Task:
    def run() -> None:
        with torch.inference_mode():
            predict(x)

    with evaluation_mode(method):
        run()
    return run
