"""Prepares the next items of an iterator in a thread, while the current one is used."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")


def prefetched(items: Iterator[Item], ahead: int = 2) -> Iterator[Item]:
    """The same items in the same order. Up to `ahead` of them are prepared in advance, in one thread.

    An error in the thread is raised where its item would have been returned. If torch uses all cores, items
    are prepared when they are needed: another thread would only slow the network down.
    """
    if torch.get_num_threads() >= _cores():
        yield from items
        return
    end = object()
    # One thread for its operations: the others are for the network.
    with ThreadPoolExecutor(1, "prefetch", initializer=torch.set_num_threads, initargs=(1,)) as pool:
        pending = deque(pool.submit(next, items, end) for _ in range(ahead))
        while (item := pending.popleft().result()) is not end:
            pending.append(pool.submit(next, items, end))
            yield item  # type: ignore[misc]


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
