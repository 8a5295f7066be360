"""Facts about a learning rule, and the parts of its training."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn


@dataclass(frozen=True)
class Form:
    """The form of network that a method wants; a comparison gives it to the method.

    Options that a network does not have are left out. The sizes of a network are not part of its form, unless
    the rule was published for one size.
    """

    network: Mapping[str, Any] = field(default_factory=dict)
    """Options of the network, such as {"activation": "tanh"}."""
    method: Mapping[str, Any] = field(default_factory=dict)
    """Options of the method that belong to the form."""
    raw_inputs: tuple[str, str] | None = None
    """The options of the method, a factor and an offset, that revert the standardization of the inputs."""


@dataclass(frozen=True)
class MethodInfo:
    """Facts about a method, for listings, docs and tests.

    Where a fact depends on options, `Method` has a property of the same name with the instance's value.
    """

    title: str
    paper: str
    passes: str = "1"
    """Forward passes per prediction with default options: a number, or "C", the number of classes."""
    needs_negatives: bool = False
    gradient_reach: int | Literal["all"] = 0
    """How many blocks below its own block the gradient of a loss reaches; 0 is strictly local."""
    top_signal: bool = False
    """Whether the update of a block depends on the blocks above it, by gradient or by any other signal."""
    signal: Literal["gradient", "feedback"] = "gradient"
    """What reaches a block from above, if anything does: a gradient through the blocks above it, or feedback
    of another kind, such as random weights or a relaxation."""
    hidden_auxiliary: bool | None = None
    """Whether a block learns through further layers of its own that have hidden units; None means that the
    heads of the instance tell."""
    supports: frozenset[str] | Literal["any"] = frozenset({"linear", "conv"})
    """Kinds of rows that the rule can train; "any" is for rules that only need a block's activity."""
    data_parallel: bool = True
    """False if a loss relates the samples of a batch to each other, so that its parts do not add up."""
    layer_local: bool = True
    """Whether the rule has a `layer_step`, so that its layers can be pipelined."""
    steps_within_batch: bool = False
    """Whether parameters are updated while gradients of the same batch are still being computed."""
    autocast: bool = True
    """Whether the rule can be trained in bfloat16."""
    learning_rate: float = 1e-3
    """A learning rate for short training with Adam, chosen on MNIST's validation images."""
    form: Form = Form()
    """The form of network that the rule was published with, or that its own trials chose."""


@dataclass(frozen=True)
class Stage:
    """A part of training: these blocks learn for this many epochs; all others are frozen."""

    name: str
    blocks: tuple[int, ...]
    epochs: int
    batch_size: int | None = None
    """None: the batch size of the run."""
    labels: bool = True
    """False: the blocks learn without labels."""
    predicts: bool = True
    """False: the read-out is trained in a later stage, so there is nothing to validate yet."""


@dataclass(frozen=True)
class ParameterSet:
    """Parameters that share their optimizer settings."""

    parameters: list[nn.Parameter]
    learning_rate: float = 1.0
    """Factor of the run's learning rate."""
    weight_decay: float | None = None
    """None: the weight decay of the run."""
    raw_update: bool = False
    """True: the gradient is subtracted without an optimizer; the rule has its own rates and schedule."""


def group_name(layer: int) -> str:
    """The name of the parameter group of one block."""
    return f"block{layer}"


def group_layer(group: str) -> int | None:
    """The layer of a group named by `group_name`; None for a group that does not belong to one block."""
    number = group.removeprefix("block")
    return int(number) if number.isdecimal() else None
