"""The training loop. It uses the interface of `Method` and does not depend on any particular method."""

import contextlib
import itertools
import math
import tempfile
import threading
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hff.batch import Batch
from hff.data import Augmentation, Batches, DataSet
from hff.data.prefetch import prefetched
from hff.device import pick_device, wait_for
from hff.errors import UserError, quoted, require, require_seed
from hff.evaluation import layer_accuracy
from hff.methods import Method, Stage
from hff.methods.method import group_layer
from hff.training.advice import warnings_before
from hff.training.display import default_display
from hff.training.feature_cache import FeatureCache
from hff.training.listener import Listener, TrainingProgress
from hff.training.optimizers import learning_rate
from hff.training.plan import Plan, Position
from hff.training.run import Run
from hff.training.settings import Settings
from hff.training.signals import stop_on_signal
from hff.training.trainer import Trainer, keyed_randomness

TRAINING, VALIDATION = "training", "validation"


def fit(
    method: Method,
    data: DataSet,
    settings: Settings,
    *,
    seed: int = 0,
    device: str = "auto",
    run: Run | None = None,
    listener: Listener | None = None,
) -> dict[str, Any]:
    """Trains a method and returns a summary.

    Args:
        method: the method. At the end, it is in evaluation mode and knows the preprocessing of the data.
        data: the data set. Without a validation split, the accuracy is not measured.
        settings: epochs, batch size, optimizer and so on.
        seed: the seed of all random numbers of the training.
        device: the device to train on; "auto" is the fastest one.
        run: if given, metrics and checkpoints are saved in its folder, and the training resumes from its last
            checkpoint.
        listener: receives the events of the training. The default shows the progress on a terminal or in a
            notebook; `Listener()` shows nothing.
    """
    require(isinstance(method, Method), f"fit takes a method from create_method, not {quoted(method)}.")
    require(
        isinstance(data, DataSet), f"fit takes a DataSet, such as load_data('mnist'), not {quoted(data)}."
    )
    require(isinstance(settings, Settings), f"fit takes hff.Settings(...), not {quoted(settings)}.")
    require_seed(seed)
    method.check_data(data.in_shape, len(data.classes), data.name)
    with contextlib.ExitStack() as stack:
        listener = listener or stack.enter_context(default_display(f"{method.info.title} on {data.name}"))
        if run is not None:
            stack.enter_context(run.lock)
        return _Training(method, data, settings, seed, pick_device(device), run, listener).train()


class _Training:
    """The state of one call of `fit`."""

    def __init__(
        self,
        method: Method,
        data: DataSet,
        settings: Settings,
        seed: int,
        device: torch.device,
        run: Run | None,
        listener: Listener,
    ) -> None:
        self.method = method.to(device)
        self.data = data
        self.settings = settings
        self.seed = seed
        self.device = device
        self.run = run
        self.listener = listener
        self.stages = method.stages(settings.epochs)
        self.trainer = Trainer(self.method, settings, seed=seed)
        self.plan = Plan(self.stages, settings)
        self.at = Position()
        self.saved = 0.0
        """The time at which the last checkpoint was written."""
        self.losses: dict[str, Tensor] = {}
        """The sum [] of the losses of each group in this epoch."""
        self.loss_counts: dict[str, float] = {}
        """The number of losses in each sum."""
        self.stop = threading.Event()
        self.resuming = False
        self.optimizer_state: dict[str, Tensor] = {}
        """From the checkpoint or from the previous stage: a group that continues to learn keeps its state."""
        self.cache = FeatureCache(method, 0, {}, 0.0)
        """Caches the output of the blocks that are frozen in this stage."""
        self.accuracy: dict[int, float] = {}
        """The last validation accuracy of each layer; a frozen layer keeps its value."""

    def train(self) -> dict[str, Any]:
        if self.run and (summary := self.run.summary()):
            return summary
        resumed = self._restore()
        parameters = sum(p.numel() for p in self.method.parameters())
        if resumed is None:
            self.listener.data_loaded(
                self.data,
                [*self.data.warnings, *warnings_before(self.method, self.data, self.settings)],
            )
        self.listener.started(len(self.method.blocks), parameters, resumed)
        self.saved = time.perf_counter()
        self.clock = self.saved - self.at.seconds
        record: dict[str, Any] = {}
        with stop_on_signal(self.stop, active=self.run is not None):
            while self.at.stage < len(self.stages):
                record = self._train_stage(self.stages[self.at.stage]) or record
        self.method.eval()
        self.method.preprocessing, self.method.class_names = self.data.preprocessing, self.data.classes
        summary = self._summary(record)
        if self.run:
            self.run.finish(summary)
        self.listener.finished(summary)
        return summary

    def _train_stage(self, stage: Stage) -> dict[str, Any]:
        batches = Batches(
            self.data.train,
            self.data.preprocessing,
            stage.batch_size or self.settings.batch_size,
            (self.seed, self.at.stage),
            self.data.augmentation,
            views=self.method.views,
            balanced=self.settings.balance_classes,
        )
        self.trainer.begin(stage)
        self.cache = self._feature_cache(stage)
        if self.resuming:
            self._restore_cache(stage, batches)
        else:
            self._prepare(stage, batches.batch_size)
        self.trainer.optimizers.load_state(self.optimizer_state)
        self.resuming, self.optimizer_state = False, {}
        record: dict[str, Any] = {}
        while not self.plan.over(self.at, len(batches)):
            rate = self._train_epoch(stage, batches)
            if self.plan.due(self.at, len(batches)):
                record = self._record(stage, rate)
                self._keep(record["epoch"])
                self._save()
                self.listener.epoch_ended(record)
            else:
                self._save_if_due()
            self._raise_if_stopped()
        self.optimizer_state = self.trainer.optimizers.state()
        self.at.stage, self.at.epoch = self.at.stage + 1, 0
        return record

    def _prepare(self, stage: Stage, batch_size: int) -> None:
        batches = Batches.in_order(self.data.train, self.data.preprocessing, batch_size)
        self.method.eval()
        with keyed_randomness(self.device, self.seed, self.at.stage, "prepare"):
            self.method.prepare(stage, lambda: (batch.to(self.device) for batch in batches.epoch(0)))

    def _feature_cache(self, stage: Stage) -> FeatureCache:
        """A cache for the splits whose features are the same in every epoch of a stage."""
        depth = self.method.frozen_depth(stage)
        samples: dict[str, int] = {}
        if depth and (stage.epochs > 1 or self.settings.seconds is not None):
            if self.data.validation and stage.predicts and self.method.reads_out_from(depth):
                samples[VALIDATION] = len(self.data.validation)
            repeated = self.data.augmentation == Augmentation.none() and self.method.views == 1
            # A balanced epoch does not contain every sample.
            if repeated and not self.settings.balance_classes:
                samples[TRAINING] = len(self.data.train)
        folder = None
        if self.settings.cache_location == "disk":
            folder = self.run.folder if self.run else Path(tempfile.gettempdir())
        return FeatureCache(self.method, depth, samples, self.settings.cache_gigabytes, folder)

    def _restore_cache(self, stage: Stage, batches: Batches) -> None:
        """Recomputes the cache of an interrupted run, in the same batches, since they affect the rounding."""
        if TRAINING not in self.cache:
            return
        self.method.enter(stage)
        seen = len(batches) if self.at.epoch else self.at.step
        for batch in itertools.islice(batches.epoch(0), seen):
            self.cache.attach(batch.to(self.device), TRAINING)
            if self.cache.cached[TRAINING] is None:
                return

    def _train_epoch(self, stage: Stage, batches: Batches) -> float:
        """Trains to the end of the epoch or of the stage, whichever is first; returns the learning rate."""
        self.method.enter(stage)
        steps = len(batches)
        begun = shown = time.perf_counter()
        first_spent, first_step = self.at.spent, self.at.step
        rate = self.settings.learning_rate
        for batch in prefetched(batches.epoch(self.at.epoch, start=self.at.step)):
            rate = learning_rate(self.settings, self.plan.progress(self.at, steps))
            self._step(self.cache.attach(batch.to(self.device), TRAINING), rate)
            if self.settings.seconds is not None:
                wait_for(self.device)
            now = time.perf_counter()
            self.at.step += 1
            self.at.samples += len(batch.y)
            self.at.spent += now - begun
            if now - shown > 0.2:
                shown = now
                pace = (self.at.spent - first_spent) / (self.at.step - first_step)
                self.listener.stepped(self._progress(stage, steps, pace))
            if self.at.step == steps or self.plan.over(self.at, steps):
                break
            self._save_if_due()
            self._raise_if_stopped()
            begun = time.perf_counter()
        self.at.epoch, self.at.step = self.at.epoch + 1, 0
        return rate

    def _step(self, batch: Batch, rate: float) -> None:
        for group, loss in self.trainer.step(batch, rate).items():
            self.losses[group] = self.losses[group] + loss if group in self.losses else loss
            self.loss_counts[group] = self.loss_counts.get(group, 0.0) + 1

    def _record(self, stage: Stage, rate: float) -> dict[str, Any]:
        """Validates and writes one line of metrics."""
        losses = self._mean_losses()
        broken = [group for group, loss in losses.items() if not math.isfinite(loss)]
        if broken:
            raise UserError(f"The loss of {broken[0]} is no longer finite; use a smaller learning rate.")
        if not all(bool(torch.isfinite(p).all()) for p in self.method.parameters()):
            raise UserError("The weights are no longer finite; use a smaller learning rate.")
        accuracy, read_out = self._validate(stage)
        self.method.observe_validation(accuracy)
        self.losses, self.loss_counts = {}, {}
        self.at.records += 1
        record = {
            "stage": stage.name,
            "epoch": self.plan.epochs(self.at, len(self.data.train)),
            "epochs": sum(each.epochs for each in self.stages),
            "loss": losses,
            "validation_accuracy": {str(layer): a for layer, a in accuracy.items()},
            "read_out_accuracy": read_out,
            "learning_rate": rate,
            "seconds": round(time.perf_counter() - self.clock, 3),
        }
        if (share := self.plan.share(self.at)) is not None:
            record |= {"epochs": None, "share": share, "training_seconds": round(self.at.spent, 3)}
        if diagnostics := self.method.diagnostics():
            record["diagnostics"] = diagnostics
        if self.run:
            self.run.append_metrics(record)
        return record

    def _validate(self, stage: Stage) -> tuple[dict[int, float], float | None]:
        """The accuracy of each layer trained so far, and of the read-out if all of its layers are trained."""
        if self.data.validation is None or not stage.predicts:
            return {}, None
        batches = Batches.in_order(self.data.validation, self.data.preprocessing, 512)
        cached = (self.cache.attach(batch.to(self.device), VALIDATION) for batch in batches.epoch(0))
        accuracy, read_out = layer_accuracy(self.method, cached, self.device)
        # If layers are trained one after the other, those above the current one are still untrained, and
        # those below it are frozen.
        highest = max(stage.blocks, default=len(self.method.blocks) - 1)
        accuracy = {layer: share for layer, share in accuracy.items() if layer <= highest}
        self.accuracy = dict(sorted({**self.accuracy, **accuracy}.items()))
        reached = max(self.method.read_out_layers) <= highest
        return self.accuracy, read_out if reached else None

    def _mean_losses(self) -> dict[str, float]:
        # In the order of the layers, which may differ from the order in which `update` yields them.
        layers = {group: group_layer(group) for group in self.losses}
        ordered = sorted(layers, key=lambda group: math.inf if (layer := layers[group]) is None else layer)
        return {group: float(self.losses[group] / self.loss_counts[group]) for group in ordered}

    def _progress(self, stage: Stage, steps: int, pace: float) -> TrainingProgress:
        later = sum(each.epochs for each in self.stages[self.at.stage + 1 :])
        left = pace * (steps * (stage.epochs - self.at.epoch + later) - self.at.step)
        if self.settings.seconds is not None:
            budget = max(0.0, self.settings.seconds - self.at.spent)
            left = min(left, budget) if self.plan.counts_epochs else budget
        return TrainingProgress(
            stage,
            self.at.stage,
            len(self.stages),
            self.at.epoch,
            self.at.step,
            steps,
            self._mean_losses(),
            left,
            self.plan.share(self.at),
        )

    def _summary(self, record: dict[str, Any]) -> dict[str, Any]:
        records = self.run.metrics() if self.run else [record]
        last = records[-1] if records else {}
        if warning := self._warning(last):
            warnings.warn(warning, stacklevel=3)
        diagnostics = self._final_diagnostics()
        return {
            "method": self.method.name,
            "data": self.data.name,
            "seed": self.seed,
            "epochs": self.plan.epochs(self.at, len(self.data.train)),
            "training_samples": len(self.data.train),
            "validation_samples": len(self.data.validation) if self.data.validation else 0,
            "parameters": sum(p.numel() for p in self.method.parameters()),
            "loss": last.get("loss", {}),
            "validation_accuracy": last.get("validation_accuracy", {}),
            "read_out_accuracy": last.get("read_out_accuracy"),
            "best_layer": int(self.method.best_layer),
            "seconds": round(time.perf_counter() - self.clock, 3),
            **({"diagnostics": diagnostics} if diagnostics else {}),
        }

    def _final_diagnostics(self) -> dict[str, float]:
        if self.data.validation is None:
            return {}
        batches = Batches.in_order(self.data.validation, self.data.preprocessing, 512)
        return self.method.final_diagnostics(batch.to(self.device) for batch in batches.epoch(0))

    def _warning(self, last: dict[str, Any]) -> str | None:
        """What is wrong with a training that did not learn; None if it did."""
        accuracy = last.get("read_out_accuracy")
        if accuracy is None or accuracy > 1.5 / self.method.classes:
            return None
        return (
            f"The training did not learn: {accuracy:.1%} of the validation examples are classified "
            f"correctly, about as many as by chance. Try a smaller learning rate, or more epochs."
        )

    def _save_if_due(self) -> None:
        """Saves if the last checkpoint is old enough, or if the training is about to stop."""
        if self.stop.is_set() or time.perf_counter() - self.saved > self.settings.checkpoint_seconds:
            self._save()

    def _keep(self, epoch: float) -> None:
        """Keeps the weights of an epoch that the settings name. A crash before `_save` repeats the epoch."""
        if self.run and epoch in self.settings.keep_checkpoints:
            self.run.keep(int(epoch), self._weights(), {"format": 1, "position": asdict(self.at)})

    def _weights(self) -> dict[str, Tensor]:
        return {f"method/{name}": t for name, t in self.method.state_dict().items()}

    def _save(self) -> None:
        if not self.run:
            return
        self.at.seconds = time.perf_counter() - self.clock
        tensors = self._weights()
        tensors |= {f"optimizer/{name}": t for name, t in self.trainer.optimizers.state().items()}
        tensors |= {
            f"loss/{group}": torch.tensor([float(total), self.loss_counts[group]])
            for group, total in self.losses.items()
        }
        # Every random number is a function of the seed and the position, so no generator state is saved.
        self.run.save(tensors, {"format": 1, "position": asdict(self.at), "seed": self.seed})
        self.saved = time.perf_counter()

    def _restore(self) -> str | None:
        loaded = self.run.load() if self.run else None
        if self.run is None or loaded is None:
            if self.run:
                self.run.truncate_metrics(0)
            return None
        tensors, state = loaded
        self.at = Position(**state["position"])
        if self.at.stage >= len(self.stages):
            raise UserError(
                f"The checkpoint of {self.run.folder} does not fit its config: it is in stage "
                f"{self.at.stage + 1}, but the training has {len(self.stages)}."
            )
        self.run.truncate_metrics(self.at.records)
        self.run.load_weights(self.method, tensors)
        if self.at.records:
            recorded = self.run.metrics()[-1]["validation_accuracy"]
            self.accuracy = {int(layer): share for layer, share in recorded.items()}
        for group, sums in _part(tensors, "loss/").items():
            self.losses[group], self.loss_counts[group] = sums[0].to(self.device), float(sums[1])
        self.resuming = True
        self.optimizer_state = _part(tensors, "optimizer/")
        return f"{self.stages[self.at.stage].name}, epoch {self.at.epoch + 1}, step {self.at.step}"

    def _raise_if_stopped(self) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names start with the prefix, which is removed."""
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
