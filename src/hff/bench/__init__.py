"""Benchmarks: time and memory of training and prediction, beside backprop in the same run."""

from hff.bench.compiling import bench_compile
from hff.bench.convergence import bench_convergence
from hff.bench.depth import bench_memory
from hff.bench.epoch import bench_epochs
from hff.bench.inference import bench_inference
from hff.bench.result import BenchResult
from hff.bench.step import bench_steps

__all__ = [
    "BenchResult",
    "bench_compile",
    "bench_convergence",
    "bench_epochs",
    "bench_inference",
    "bench_memory",
    "bench_steps",
]
