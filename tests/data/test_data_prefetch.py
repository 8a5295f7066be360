"""Items that are prepared in a thread while the current one is used."""

import threading
from collections.abc import Iterator

import pytest
import torch

from hff.data.prefetch import prefetched


@pytest.fixture
def free_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hff.data.prefetch._cores", lambda: torch.get_num_threads() + 1)


@pytest.mark.usefixtures("free_core")
def test_items_keep_their_order_and_are_prepared_in_another_thread() -> None:
    threads: set[str] = set()

    def items() -> Iterator[int]:
        for number in range(20):
            threads.add(threading.current_thread().name)
            yield number

    assert list(prefetched(items())) == list(range(20))
    assert all(name.startswith("prefetch") for name in threads)


@pytest.mark.usefixtures("free_core")
def test_few_items_are_prepared_in_advance() -> None:
    prepared: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            prepared.append(number)
            yield number

    iterator = prefetched(items(), ahead=2)
    assert next(iterator) == 0
    iterator.close()
    assert len(prepared) <= 4


@pytest.mark.usefixtures("free_core")
def test_an_error_is_raised_where_its_item_would_be() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise ValueError("broken")

    iterator = prefetched(items())
    assert next(iterator) == 0
    with pytest.raises(ValueError, match="broken"):
        next(iterator)


def test_no_thread_is_used_if_all_cores_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hff.data.prefetch._cores", torch.get_num_threads)
    names = [threading.current_thread().name for _ in prefetched(iter(range(2)))]
    assert names == [threading.main_thread().name] * 2
