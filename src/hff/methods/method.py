"""The contract of a learning rule, and the registry of all rules."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hff.errors import UserError, unknown
from hff.networks import Block, Network
from hff.randomness import Batch, seed_of

ReadOut = Literal["last", "best", "mean"] | int


@dataclass(frozen=True)
class Facts:
    """What a method declares about itself; lists, docs and tests read it."""

    title: str
    paper: str
    passes: str
    """Forward passes for one prediction, as a formula in C, the number of classes."""
    needs_negatives: bool
    gradient_reach: int | Literal["all"]
    """How many blocks below its own the loss of a block reaches; 0 is strictly local."""
    supports: frozenset[str] = frozenset({"linear", "conv"})
    """Kinds of rows that the rule can train."""
    data_parallel: bool = True
    layer_local: bool = True
    """Whether the rule has a `layer_step`, on which pipelining over layers rests."""


@dataclass(frozen=True)
class Stage:
    """A part of the training: these blocks learn for so many epochs; all others rest."""

    name: str
    blocks: tuple[int, ...]
    epochs: int
    batch_size: int | None = None
    """None: the batch size of the run."""
    labels: bool = True
    """False: the blocks learn without labels."""


@dataclass(frozen=True)
class ParameterSet:
    """Parameters that share their optimiser settings."""

    parameters: list[nn.Parameter]
    learning_rate: float = 1.0
    """Factor of the run's learning rate."""
    weight_decay: float | None = None
    """None: the weight decay of the run."""


class Method(nn.Module, ABC):
    """A learning rule with the blocks, heads and prototypes that it trains.

    A local rule implements `layer_step` and inherits `update`; any other rule overrides `update` and writes
    `.grad` itself. Gradients are added to, as means over the samples of the batch.
    """

    name: ClassVar[str]
    facts: ClassVar[Facts]
    best_layer: Tensor

    def __init__(self, network: Network, classes: int, *, read_out: ReadOut = "last") -> None:
        super().__init__()
        if classes < 2:
            raise UserError(f"A classifier needs at least 2 classes, but the data has {classes}.")
        self.classes = classes
        self.read_out = read_out
        self.blocks = nn.ModuleList(network.blocks())
        self.register_buffer("best_layer", torch.tensor(len(self.blocks) - 1))
        if isinstance(read_out, int) and not -len(self.blocks) <= read_out < len(self.blocks):
            raise UserError(f"read_out {read_out} is no layer of a network with {len(self.blocks)} layers.")

    def block(self, layer: int) -> Block:
        block = self.blocks[layer]
        assert isinstance(block, Block)
        return block

    def stages(self, epochs: int) -> list[Stage]:
        """The parts of the training, in order; by default one, in which all blocks learn."""
        return [Stage("joint", tuple(range(len(self.blocks))), epochs)]

    def prepare(self, stage: Stage, batches: Callable[[], Iterable[Batch]]) -> None:
        """Sets what depends on the data before a stage begins; `batches` walks the training split once."""

    def enter(self, stage: Stage) -> None:
        """Training mode for the blocks that learn, evaluation mode for those at rest."""
        self.train()
        for layer, block in enumerate(self.blocks):
            block.train(layer in stage.blocks)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        """What learns in a stage: the groups that `update` names, each with an optimiser of its own."""
        return {
            group_name(layer): [ParameterSet(list(self.block(layer).parameters()))] for layer in stage.blocks
        }

    def layer_step(self, layer: int, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Forward of one block on its input h, local loss, `backward()`.

        Returns the loss and the detached input of the next block, both computed before the step.
        """
        raise UserError(f"{self.facts.title} has no local step, so its layers cannot be trained one by one.")

    def pass_on(self, layer: int, h: Tensor) -> Tensor:
        """The input of the next block, from the input of this one."""
        out: Tensor = self.blocks[layer](h)
        return out

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        """Yields (group, loss) as soon as the gradients of a group are complete; the loop then steps it.

        Only one block's graph is alive at any moment.
        """
        h = batch.x
        with torch.no_grad():
            for layer in range(min(stage.blocks)):
                h = self.pass_on(layer, h)
        for layer in range(min(stage.blocks), max(stage.blocks) + 1):
            if layer in stage.blocks:
                loss, h = self.layer_step(layer, h, batch.y)
                yield group_name(layer), loss
            else:
                with torch.no_grad():
                    h = self.pass_on(layer, h)

    def after_step(self, group: str) -> None:
        """What follows an optimiser step of a group: renormalisation, moving averages."""

    def reduced_buffers(self) -> list[Tensor]:
        """Sums and counts of the batch that workers add up before `after_step`."""
        return []

    @abstractmethod
    def layer_scores(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yields (layer, scores [B, C]) lazily, in order, for the layers that have scores."""

    def observe_validation(self, accuracy: dict[int, float]) -> None:
        """Told the accuracy of each layer on the validation split after every epoch."""
        if accuracy:
            self.best_layer.fill_(max(accuracy, key=lambda layer: (accuracy[layer], layer)))

    def forward(self, x: Tensor) -> Tensor:
        """The final scores [B, C], by the chosen read-out."""
        if self.read_out == "mean":
            return torch.stack([scores for _, scores in self.layer_scores(x)]).mean(0)
        if self.read_out == "best":
            wanted = int(self.best_layer)
        elif self.read_out == "last":
            wanted = len(self.blocks) - 1
        else:
            wanted = self.read_out % len(self.blocks)
        for layer, scores in self.layer_scores(x):
            if layer == wanted:
                return scores
        raise UserError(f"Layer {wanted} of {self.facts.title} gives no scores, so it cannot be read out.")


def group_name(layer: int) -> str:
    """The name of the group of parameters that belongs to one block."""
    return f"block{layer}"


def group_layer(group: str) -> int:
    """The layer that `group_name` named."""
    return int(group.removeprefix("block"))


methods: dict[str, type[Method]] = {}
"""Every learning rule by name; the keyword-only parameters of its `__init__` are its configuration."""


def register(method: type[Method]) -> type[Method]:
    methods[method.name] = method
    return method


def create(name: str, network: Network, classes: int, *, seed: int = 0, **options: Any) -> Method:
    """A method on fresh blocks, initialised by the seed alone; torch's global generator is left as it was."""
    if name not in methods:
        raise unknown("method", name, methods)
    method = methods[name]
    valid = [p.name for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in valid:
            raise unknown(f"parameter of method {name!r}:", option, valid)
    refused = {row.kind for row in network.rows} - method.facts.supports
    if refused:
        raise UserError(
            f"{method.facts.title} trains {' and '.join(sorted(method.facts.supports))} layers only, "
            f"but network {network.name!r} has {' and '.join(sorted(refused))} layers."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initialisation"))
        return method(network, classes, **options)
