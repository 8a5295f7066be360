"""What the loop is told: budget, optimiser, schedule."""

from dataclasses import dataclass
from typing import Literal

from hff.errors import UserError


@dataclass(frozen=True)
class Settings:
    """How to train, whatever the method.

    Args:
        epochs: passes over the training split (for each layer, where they are trained one after the other).
        seconds: a budget of training time in place of epochs, which then only say how the parts of a
            training share it. Validation and checkpoints do not count.
        batch_size: samples in a mini-batch.
        micro_batch_size: largest part of a mini-batch that is computed at once; the gradients of the parts
            are added up, which takes less memory and gives the same step. None computes it as a whole.
        precision: number format of the forward and backward pass; bfloat16 keeps weights, losses and
            optimizer in float32.
        optimizer: the optimiser of every group of parameters.
        learning_rate: its learning rate at the start.
        momentum: momentum of SGD and RMSprop.
        epsilon: what Adam and RMSprop add to the root of the mean squared gradient that they divide by.
        weight_decay: weight decay (decoupled in adamw).
        lr_schedule: how the learning rate falls over a stage: not at all, by a factor of 10 at two thirds and
            again at five sixths, linearly to 0, or as a half cosine to 0.
        clip: largest gradient norm of a group; 0 means no clipping. Layers are never clipped together.
        checkpoint_seconds: time between two checkpoints within an epoch; one is written after every epoch.
        cache_gigabytes: memory for the outputs of frozen blocks, which are then computed once and not in
            every epoch; 0 caches nothing.
    """

    epochs: int = 15
    seconds: float | None = None
    batch_size: int = 128
    micro_batch_size: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    lr_schedule: Literal["constant", "step", "linear", "cosine"] = "constant"
    clip: float = 0.0
    checkpoint_seconds: float = 60.0
    cache_gigabytes: float = 2.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise UserError(f"micro_batch_size must be at least 1 or none, not {self.micro_batch_size}.")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise UserError(f"seconds must be a positive number or none, not {self.seconds}.")
        if not 0 < self.learning_rate < float("inf"):
            raise UserError(f"learning_rate must be a positive number, not {self.learning_rate}.")
        if not 0 < self.epsilon < float("inf"):
            raise UserError(f"epsilon must be a positive number, not {self.epsilon}.")
        for name in ("momentum", "weight_decay", "clip", "checkpoint_seconds", "cache_gigabytes"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(f"{name} must not be negative, but is {getattr(self, name)}.")
