"""`hff bench memory`: memory and time of training against the depth of a network and the batch size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hff.bench.cost import interleaved, random_batch, trained_stages, training_steps
from hff.bench.live import peak_live_bytes
from hff.bench.memory import MemoryMeter
from hff.bench.result import BenchResult, median, ratio
from hff.methods import Method, create_method
from hff.networks import Shape, create_network
from hff.training.settings import Settings
from hff.training.trainer import Trainer

CHANNELS, SIDE, CLASSES = 64, 32, 10
DEPTHS, BATCH_SIZES = (2, 4, 8, 16, 32), (32, 128)
MEGABYTE = 1e6


@dataclass(frozen=True)
class Contender:
    """A way to train the network."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    parts: int = 1
    """The number of parts of a batch whose gradients are accumulated."""

    def build(self, depth: int, channels: int, in_shape: Shape) -> Method:
        network = create_network("cnn", in_shape, CLASSES, channels=(channels,) * depth, pool=1)
        return create_method(self.method, network, CLASSES, **self.options)

    def settings(self, batch_size: int) -> Settings:
        settings = Settings(batch_size=batch_size)
        return replace(settings, micro_batch_size=batch_size // self.parts) if self.parts > 1 else settings


CONTENDERS = {
    "backprop": Contender("backprop"),
    "backprop, checkpointing": Contender("backprop", {"checkpointing": True}),
    "backprop, 8 parts": Contender("backprop", parts=8),
    "hff": Contender("hff"),
    "hff, 8 parts": Contender("hff", parts=8),
}
"""The ways to train. Critics of local learning point at the two that make backprop leaner."""


def bench_memory(
    depths: Sequence[int] = DEPTHS,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    *,
    channels: int = CHANNELS,
    side: int = SIDE,
    rounds: int = 3,
    report: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Measures convolutions without pooling on square images: peak memory, live bytes and time.

    The peak is what training adds to the resident memory of a process. Live bytes are those of the tensors
    that a step creates. They do not include parameters and optimizer state, which have a column of their own.

    Args:
        depths: numbers of convolutions.
        batch_sizes: batch sizes; all but the last are measured at the deepest network only.
        channels: channels of every convolution.
        side: height and width of the images.
        rounds: timed rounds.
        report: is told what is measured next.
    """
    grid = [(depths[-1], size) for size in batch_sizes[:-1]] + [(depth, batch_sizes[-1]) for depth in depths]
    rows: list[dict[str, Any]] = []
    with MemoryMeter() as meter:
        for depth, size in grid:
            report(f"{depth} convolutions, batch size {size}")
            rows += _rows(meter, depth, channels, (3, side, side), size, rounds)
    return BenchResult("memory", tuple(rows))


def _rows(
    meter: MemoryMeter, depth: int, channels: int, in_shape: Shape, size: int, rounds: int
) -> list[dict[str, Any]]:
    batch = random_batch(in_shape, CLASSES, size)
    tasks, live, state, peak = {}, {}, {}, {}
    for name, each in CONTENDERS.items():
        settings, build = each.settings(size), partial(each.build, depth, channels, in_shape)
        peak[name] = meter.peak(build, settings, in_shape)
        method = build()
        trainer = Trainer(method, settings)
        trainer.step(batch)
        live[name] = peak_live_bytes(partial(trainer.step, batch))
        moments = sum(t.nbytes for t in trainer.optimizers.state().values())
        state[name] = sum(p.nbytes for p in method.parameters()) + moments
        tasks[name] = training_steps(method, trained_stages(method, settings)[0], settings, [batch])
    seconds = interleaved(tasks, rounds)
    return [
        {
            "convolutions": depth,
            "batch_size": size,
            "contender": name,
            "peak_mb": peak[name] / MEGABYTE,
            "ratio_to_backprop": peak[name] / peak["backprop"],
            "live_mb": live[name] / MEGABYTE,
            "parameters_and_state_mb": state[name] / MEGABYTE,
            "ms_per_step": median([1e3 * each for each in seconds[name]]),
            "time_ratio": ratio(seconds[name], seconds["backprop"]),
        }
        for name in CONTENDERS
    ]
