"""Stateless random numbers: every draw is a function of a key such as (seed, stage, epoch, step).

A run that is resumed in the middle of an epoch, or distributed over processes, draws the same numbers.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

Key = tuple[int | str, ...]


def seed_of(*key: int | str) -> int:
    """A 63-bit seed that depends on every part of the key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(*key: int | str) -> torch.Generator:
    """A CPU generator seeded with the key."""
    return torch.Generator().manual_seed(seed_of(*key))


def permutation(length: int, *key: int | str) -> Tensor:
    """A random permutation [length] of 0 to length - 1."""
    return torch.randperm(length, generator=generator(*key))


def uniform(index: Tensor, count: int, *key: int | str) -> Tensor:
    """Uniform numbers in [0, 1), [B, count], that depend on the key and on the index of each sample [B].

    They do not depend on the other samples of the batch, so several workers that share a batch draw the same
    numbers as one process (SplitMix64 used as a counter-based generator).
    """
    sample = index.to("cpu", torch.int64).numpy().astype(np.uint64)
    with np.errstate(over="ignore"):
        stream = _mix(sample * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed_of(*key)))
        counter = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
        bits = _mix(stream[:, None] + counter)
    return torch.from_numpy((bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24))


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = z ^ (z >> np.uint64(31))
    return mixed
