"""The settings of a training: budget, batch size, precision, optimizer and schedule."""

from dataclasses import dataclass
from typing import Literal

from hff.config import fields_of
from hff.errors import UserError


@dataclass(frozen=True)
class Settings:
    """The settings of a training, the same for all methods.

    Args:
        epochs: number of passes over the training split (for each layer, if layers are trained one after the
            other).
        seconds: time budget for training steps, which replaces the number of epochs; the stages of a training
            share it in proportion to their epochs. Validation and checkpoints do not count.
        stop_at: with a time budget, stop when it is spent (seconds), or after the number of epochs if that
            comes first (either).
        batch_size: number of samples in a mini-batch.
        micro_batch_size: maximum number of samples that are computed at once. The gradients of the parts of a
            mini-batch are accumulated, which takes less memory and gives the same step. None computes the
            mini-batch as a whole.
        balance_classes: whether every class is drawn equally often in an epoch. Examples of rare classes are
            repeated, and only a part of those of frequent classes is used, another one in every epoch.
        closed_form: whether layers whose gradients have a closed form compute them without autograd, which is
            faster; the results are the same up to rounding.
        compile: whether to compile what autograd differentiates with torch.compile; the results are the same
            up to rounding. It takes seconds to minutes at the start and needs a C++ compiler.
        precision: number format of the forward and backward passes; with bfloat16, weights, losses and
            optimizer state remain in float32.
        optimizer: optimizer of all parameters.
        learning_rate: initial learning rate.
        momentum: momentum of SGD and RMSprop.
        epsilon: constant added to the denominator of Adam and RMSprop for numerical stability.
        weight_decay: weight decay (decoupled in adamw).
        lr_schedule: schedule of the learning rate within a stage: constant, divided by 10 at two thirds and
            again at five sixths (step), linear to 0, or cosine to 0.
        clip: maximum gradient norm of each group of parameters, usually a layer; 0 means no clipping.
        checkpoint_seconds: time between checkpoints within an epoch; one is also written after every epoch.
        keep_checkpoints: epochs after which the weights are kept in a file of their own, such as 1,5,15, for
            `hff explain` and `hff report`; in a training of several stages, the epochs of all stages count.
        cache_gigabytes: memory for the outputs of frozen blocks, which are then computed once instead of in
            every epoch; with 0, none are kept in memory.
        cache_location: what happens to outputs that do not fit into that memory: they are computed in every
            epoch (memory), or kept in a temporary file (disk) in the run folder or, without a run, in the
            temporary folder of the system.
    """

    epochs: int = 15
    seconds: float | None = None
    stop_at: Literal["seconds", "either"] = "seconds"
    batch_size: int = 128
    micro_batch_size: int | None = None
    balance_classes: bool = False
    closed_form: bool = True
    compile: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    lr_schedule: Literal["constant", "step", "linear", "cosine"] = "constant"
    clip: float = 0.0
    checkpoint_seconds: float = 60.0
    keep_checkpoints: tuple[int, ...] = ()
    cache_gigabytes: float = 2.0
    cache_location: Literal["memory", "disk"] = "memory"

    def __post_init__(self) -> None:
        # The command line checks types as well; from Python, `epochs=2.5` would fail much later.
        for field in fields_of(Settings):
            object.__setattr__(self, field.name, field.parse(getattr(self, field.name), field.name))
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise UserError(f"micro_batch_size must be at least 1, or none, not {self.micro_batch_size}.")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise UserError(f"seconds must be a positive number or none, not {self.seconds}.")
        if any(epoch < 1 for epoch in self.keep_checkpoints):
            raise UserError(f"keep_checkpoints must be epochs from 1 on, not {list(self.keep_checkpoints)}.")
        if self.keep_checkpoints and self.seconds is not None:
            raise UserError("keep_checkpoints counts epochs, but a time budget does not; give epochs.")
        if not 0 < self.learning_rate < float("inf"):
            raise UserError(f"learning_rate must be a positive number, not {self.learning_rate}.")
        if not 0 < self.epsilon < float("inf"):
            raise UserError(f"epsilon must be a positive number, not {self.epsilon}.")
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum must be at least 0 and below 1, not {self.momentum:g}.")
        for name in ("weight_decay", "clip", "checkpoint_seconds", "cache_gigabytes"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(f"{name} must not be negative, but is {getattr(self, name)}.")
