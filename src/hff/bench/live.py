"""The bytes of all tensors that are alive at the same time, counted exactly, whatever the allocator does."""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that operations create while the mode is active.

    ```python
    with LiveBytes() as live:
        trainer.step(batch)
    print(live.peak)
    ```

    Tensors that existed before are not counted, and scratch memory inside an operation is not either.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        """Bytes of the tensors that are alive now."""
        self.peak: int = 0
        """The largest number of bytes that were alive at the same time."""
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, operation: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        before = {each.untyped_storage() for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        result = operation(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and each.untyped_storage() not in before:
                self._add(each)
        return result

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._seen:
            return
        self._seen.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._remove, size)

    def _remove(self, size: int) -> None:
        self.now -= size


def peak_live_bytes(task: Callable[[], object]) -> int:
    """The largest number of bytes that tensors created by a task occupy at the same time."""
    live = LiveBytes()
    with live:
        task()
    return live.peak
