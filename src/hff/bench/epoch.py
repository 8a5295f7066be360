"""`hff bench epoch`: an epoch of training from end to end, beside its steps alone."""

import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hff.bench.cost import Task, interleaved, trained_stages, training_steps
from hff.bench.result import BenchResult, median, ratio
from hff.bench.step import BATCH_SIZE, CLASSES, NETWORKS, using_threads
from hff.data import DataSet
from hff.errors import unknown
from hff.methods import Method, create_method
from hff.networks import Shape, create_network
from hff.training.fit import fit
from hff.training.listener import Listener
from hff.training.run import Run
from hff.training.settings import Settings

TIMED = ("mlp 3x256", "mlp 3x500", "mlp 3x2000", "cnn 32-64-128")
METHODS = ("backprop", "hff")
IMAGES, VALIDATION = 60_000, 1 / 12
"""The training images of MNIST, and the share of them that is held out for validation: 5,000."""
STEPS = 100
"""Steps that are timed alone in every round."""


def bench_epochs(
    networks: Sequence[str] = TIMED,
    methods: Sequence[str] = METHODS,
    threads: Sequence[int] = (1, 2),
    *,
    data: DataSet | None = None,
    images: int = IMAGES,
    rounds: int = 5,
    report: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Times an epoch of `fit` in a run folder, beside the training steps alone, all in turn in every round.

    An epoch includes preparing the batches, validation, metrics and checkpoints. `gain_kept` is the share of
    the time that a method saves in its steps, relative to backprop, that is left of an epoch; None if its
    steps are not faster.

    Args:
        networks: names in `bench.step.NETWORKS`.
        methods: methods to time; ratios are to backprop, which is always timed.
        threads: numbers of threads.
        data: the data set. By default, random images, so that no files are needed: gray ones of 28x28 pixels
            for an MLP, otherwise in the input shape of the network.
        images: the number of random images, of which a twelfth is for validation.
        rounds: timed rounds.
        report: is told what is measured next.
    """
    if wrong := set(networks) - NETWORKS.keys():
        raise unknown("network", min(wrong), NETWORKS)
    names = list(dict.fromkeys(["backprop", *methods]))
    rows: list[dict[str, Any]] = []
    for each in threads:
        with using_threads(each):
            for network in networks:
                report(f"{network}, {each} thread{'s' * (each > 1)}")
                rows += _rows(network, names, data, images, each, rounds)
    return BenchResult("epoch", tuple(rows))


def _rows(
    network: str, names: Sequence[str], data: DataSet | None, images: int, threads: int, rounds: int
) -> Iterator[dict[str, Any]]:
    table, in_shape, options, _ = NETWORKS[network]
    data = data or random_images((1, 28, 28) if table == "mlp" else in_shape, images)
    settings = Settings(epochs=1, batch_size=BATCH_SIZE)
    batches = list(islice(data.batches(BATCH_SIZE), STEPS))
    tasks: dict[tuple[str, str], Task] = {}
    for name in names:
        own = create_network(table, data.in_shape, len(data.classes), **options)
        stepped, fitted = (create_method(name, own, len(data.classes)) for _ in range(2))
        stage = trained_stages(stepped, settings)[0]
        tasks[name, "step"] = training_steps(stepped, stage, settings, batches)
        tasks[name, "epoch"] = epoch(fitted, data, settings)
    seconds = interleaved(tasks, rounds)
    steps, epochs = ({name: seconds[name, kind] for name in names} for kind in ("step", "epoch"))
    for name in names:
        step_ratio = ratio(steps[name], steps["backprop"])
        epoch_ratio = ratio(epochs[name], epochs["backprop"])
        saved = 1 - step_ratio.median
        yield {
            "network": network,
            "data": data.name,
            "images": len(data.train),
            "threads": threads,
            "method": name,
            "ms_per_step": median([1e3 * each / len(batches) for each in steps[name]]),
            "seconds_per_epoch": median(epochs[name]),
            "step_ratio": step_ratio,
            "epoch_ratio": epoch_ratio,
            "gain_kept": (1 - epoch_ratio.median) / saved if saved > 0 else None,
            "steps_share_of_epoch": median(steps[name]).median
            * math.ceil(len(data.train) / BATCH_SIZE)
            / (len(batches) * median(epochs[name]).median),
            "rounds": rounds,
        }


def epoch(method: Method, data: DataSet, settings: Settings) -> Task:
    """A task that continues to train a method, in a new run folder every time."""

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            # Random labels cannot be learned, and `fit` would say so.
            warnings.simplefilter("ignore")
            run = Run.create(Path(folder, "run"), {}, data)
            fit(method, data, settings, device="cpu", run=run, listener=Listener())

    return train


def random_images(in_shape: Shape, count: int) -> DataSet:
    """A data set of random images [count, *in_shape] in bytes, with random labels."""
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (count, *in_shape), dtype=np.uint8)
    labels = draw.integers(0, CLASSES, count)
    return DataSet.from_arrays(
        pixels, labels, validation=VALIDATION, classes=range(CLASSES), name="random images"
    )
