"""One training step, used by `fit` and available for custom training loops."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hff.batch import Batch
from hff.errors import UserError, quoted, require, require_seed
from hff.methods import Method, Stage
from hff.methods.compiled import Compilable, Compiled, missing_compiler
from hff.randomness import seed_of
from hff.training.allocator import keep_freed_memory
from hff.training.optimizers import Optimizers
from hff.training.settings import Settings

TOGETHER = 2_000_000
"""Bytes of gradients of the groups that are stepped at once. More would take memory between that of maps."""


class Trainer:
    """Trains a method step by step.

    ```python
    trainer = hff.Trainer(method, hff.Settings(learning_rate=1e-3))
    for x, y in loader:
        losses = trainer.step(hff.Batch(x, y))
    ```

    A method is trained in one or more stages. The trainer starts with the first stage; `begin` starts another
    one. `hff.fit` goes through all stages, and also validates, records and saves.

    Args:
        method: the method to train.
        settings: micro-batch size, precision, optimizer and learning rate.
        stage: the first stage; None means the first stage of the method.
        seed: seed of the random numbers of batches that have no key.
    """

    def __init__(
        self, method: Method, settings: Settings | None = None, *, stage: Stage | None = None, seed: int = 0
    ) -> None:
        self.method = method
        self.settings = settings or Settings()
        require(isinstance(method, Method), f"A Trainer takes a method, not {quoted(method)}.")
        require(isinstance(self.settings, Settings), f"A Trainer takes hff.Settings, not {quoted(settings)}.")
        require_seed(seed)
        self.seed = seed
        self.steps = 0
        """The number of steps taken in the current stage."""
        if reason := unsupported_settings(method, self.settings) or untrained_parameters(method, self.stages):
            raise UserError(reason)
        keep_freed_memory()
        first = stage or next(each for each in self.stages if each.epochs > 0)
        self.begin(first)

    @property
    def stages(self) -> list[Stage]:
        """The stages of the training, in order."""
        return self.method.stages(self.settings.epochs)

    def begin(self, stage: Stage) -> None:
        """Starts a stage: only its blocks learn from now on, with new optimizers."""
        self.stage = stage
        self.steps = 0
        self.method.closed_form = self.settings.closed_form
        if isinstance(self.method, Compilable):
            self.method.compiled = (self.method.compiled or Compiled()) if self.settings.compile else None
        # The thresholds were chosen for the weights before this training.
        self.method.early_exit = None
        self.optimizers = Optimizers(self.method, stage, self.settings)
        self._steps_within_batch = self.method.steps_within_batch

    def prepare(self, batches: Iterable[Batch]) -> None:
        """Initializes what depends on the data, such as prototypes at class means. Call it after `begin`.

        Some methods iterate over `batches` several times, so pass a list or another collection.
        """
        self.method.eval()
        self.method.prepare(self.stage, lambda: batches)

    def step(self, batch: Batch, learning_rate: float | None = None) -> dict[str, Tensor]:
        """Trains on one batch and returns the loss [] of each group of parameters, as the mean over samples.

        Args:
            batch: inputs and labels on the device of the method.
            learning_rate: the learning rate of this step; None means the one in the settings.
        """
        rate = self.settings.learning_rate if learning_rate is None else learning_rate
        if self.steps == 0:
            # Only once, because reading the labels waits for the device.
            check_batch(self.method, batch)
        if not batch.key:
            batch = replace(batch, key=(self.seed, self.stage.name, 0, self.steps))
        self.method.enter(self.stage)
        with keyed_randomness(batch.x.device, *batch.key), self._autocast(batch):
            losses = self._accumulate(batch, rate) if self._is_split(batch) else self._whole(batch, rate)
        self.steps += 1
        return losses

    def _whole(self, batch: Batch, rate: float) -> dict[str, Tensor]:
        """Steps each group after its gradients are complete, and twice if it is yielded twice.

        Small groups wait for each other, so that one call of the optimizer updates all of them. The result is
        the same, because the output of a block is computed before the block steps.
        """
        losses: dict[str, list[Tensor]] = {}
        waiting: list[str] = []
        room = 0 if self._steps_within_batch else TOGETHER
        for group, loss in self.method.update(batch, self.stage):
            losses.setdefault(group, []).append(loss.float())
            waiting.append(group)
            room -= self.optimizers.gradient_bytes.get(group, 0)
            if room <= 0:
                self._advance(waiting, rate)
                waiting, room = [], 0 if self._steps_within_batch else TOGETHER
        self._advance(waiting, rate)
        return {
            group: each[0] if len(each) == 1 else torch.stack(each).mean() for group, each in losses.items()
        }

    def _accumulate(self, batch: Batch, rate: float) -> dict[str, Tensor]:
        """Accumulates the gradients of the parts of a batch, weighted by their sizes, then steps.

        The result is that of the whole batch, because a local method computes the output of a block before
        the block steps.
        """
        assert self.settings.micro_batch_size is not None
        losses: dict[str, Tensor] = {}
        parameters = list(self.method.parameters())
        totals: list[Tensor | None] = [None] * len(parameters)
        for part in batch.split(self.settings.micro_batch_size):
            share = len(part.y) / len(batch.y)
            for group, loss in self.method.update(part, self.stage):
                losses[group] = losses.get(group, torch.zeros_like(loss.float())) + share * loss.float()
            for number, parameter in enumerate(parameters):
                if parameter.grad is not None:
                    weighted, total = parameter.grad.mul_(share), totals[number]
                    totals[number] = weighted if total is None else total.add_(weighted)
                    parameter.grad = None
        for parameter, total in zip(parameters, totals, strict=True):
            parameter.grad = total
        self._advance(list(losses), rate)
        return losses

    def _advance(self, groups: Sequence[str], rate: float) -> None:
        self.optimizers.step(tuple(groups), rate)
        for group in groups:
            self.method.after_step(group)

    def _is_split(self, batch: Batch) -> bool:
        size = self.settings.micro_batch_size
        return size is not None and size < len(batch.y)

    def _autocast(self, batch: Batch) -> contextlib.AbstractContextManager[object]:
        if self.settings.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(batch.x.device.type, dtype=torch.bfloat16)


def check_batch(method: Method, batch: Batch) -> None:
    """Refuses a batch whose inputs or labels do not fit the method."""
    if not isinstance(batch, Batch):
        raise UserError(f"A step takes hff.Batch(x, y), not a {type(batch).__name__}.")
    if not batch.depth:
        method.check_inputs(batch.x)
    y = batch.y
    if y.is_floating_point() or y.ndim != 1 or len(y) != len(batch.x):
        given = f"{y.dtype} {list(y.shape)}"
        raise UserError(f"The labels must be one integer for each of {len(batch.x)} samples, not {given}.")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < method.classes:
        raise UserError(
            f"The labels must be 0 to {method.classes - 1}, the classes of the method, not {int(y.min())} to "
            f"{int(y.max())}."
        )


def untrained_parameters(method: Method, stages: Sequence[Stage]) -> str | None:
    """Which parameter no stage would train, in one sentence; None if all are trained or frozen.

    A parameter is frozen by `requires_grad_(False)`.
    """
    groups = [sets for stage in stages for sets in method.parameter_groups(stage).values()]
    trained = {p for sets in groups for each in sets for p in each.parameters}
    left = [name for name, p in method.named_parameters() if p.requires_grad and p not in trained]
    if not left:
        return None
    return (
        f"{method.info.title} would never train {left[0]!r}: add it to parameter_groups, or freeze it with "
        f"requires_grad_(False)."
    )


def unsupported_settings(method: Method, settings: Settings) -> str | None:
    """The reason why a method cannot be trained with these settings, in one sentence; None if it can."""
    title = method.info.title
    if settings.precision == "bfloat16" and not method.info.autocast:
        return f"{title} needs float32, because it computes its updates directly or from small differences."
    if settings.compile:
        if not (isinstance(method, Compilable) and method.compiles):
            return f"{title} cannot be compiled, because it has a training step of its own; remove compile."
        if reason := missing_compiler():
            return reason
    last = sum(stage.epochs for stage in method.stages(settings.epochs))
    if late := [epoch for epoch in settings.keep_checkpoints if epoch > last]:
        return f"keep_checkpoints names epoch {late[0]}, but the training has {last} epochs."
    if settings.micro_batch_size is None:
        return None
    if method.samples_interact:
        return (
            f"{title} cannot split a batch, because its samples affect each other through the loss or batch "
            f"norm; remove micro_batch_size."
        )
    if method.steps_within_batch:
        return f"{title} cannot split a batch, because it steps within the batch; remove micro_batch_size."
    return None


@contextlib.contextmanager
def keyed_randomness(device: torch.device, *key: int | str) -> Iterator[None]:
    """Seeds torch's global generators (for dropout) with the key; restores that of the CPU at the end."""
    # `fork_rng` and `torch.manual_seed` look for devices of every kind, which takes a fifth of a small step.
    generator = torch.default_generator
    state, seed = generator.get_state(), seed_of(*key, "global")
    generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)
