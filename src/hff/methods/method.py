"""The contract of a learning rule, and the registry of all rules."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hff.batch import Batch
from hff.errors import UserError, unknown
from hff.networks import Block, Network
from hff.randomness import seed_of

ReadOut = Literal["last", "best", "mean"] | int
LayerOrder = Literal["joint", "greedy"]
GreedyEpochs = Literal["each", "shared"]


@dataclass(frozen=True)
class MethodInfo:
    """What a method declares about itself; lists, docs and tests read it."""

    title: str
    paper: str
    passes: str
    """Forward passes for one prediction, as a formula in C, the number of classes, by default options."""
    needs_negatives: bool
    gradient_reach: int | Literal["all"]
    """How many blocks below its own the loss of a block reaches; 0 is strictly local."""
    supports: frozenset[str] = frozenset({"linear", "conv"})
    """Kinds of rows that the rule can train."""
    data_parallel: bool = True
    """False: a loss relates the samples of a batch to each other, so its parts do not add up to the whole."""
    layer_local: bool = True
    """Whether the rule has a `layer_step`, on which pipelining over layers rests."""
    learning_rate: float = 1e-3
    """A rate for short trainings with Adam, as short trials on MNIST's validation images chose it."""


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
    predicts: bool = True
    """False: what predicts learns in a later stage, so there is nothing to validate yet."""
    digests: bool = False
    """True: all blocks rest, so that `digest` makes the same of a sample in every epoch and may be kept."""


@dataclass(frozen=True)
class ParameterSet:
    """Parameters that share their optimiser settings."""

    parameters: list[nn.Parameter]
    learning_rate: float = 1.0
    """Factor of the run's learning rate."""
    weight_decay: float | None = None
    """None: the weight decay of the run."""
    raw_update: bool = False
    """True: the gradient is subtracted as it is; the rule has rates, decay and layer_order of its own."""


class Method(nn.Module, ABC):
    """A learning rule with the blocks, heads and prototypes that it trains.

    A local rule implements `layer_step` and inherits `update`; any other rule overrides `update` and writes
    `.grad` itself. Gradients are added to, as means over the samples of the batch.
    """

    name: ClassVar[str]
    info: ClassVar[MethodInfo]
    views: int = 1
    """How many variations of each sample a batch shall have, each augmented on its own."""
    layer_order: LayerOrder = "joint"
    """Whether each batch trains all blocks, or one block after the other is trained."""
    greedy_epochs: GreedyEpochs = "each"
    """Whether each block gets all epochs when greedy, or the blocks share them."""
    best_layer: Tensor

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        read_out: ReadOut = "last",
        blocks: Sequence[nn.Module] | None = None,
    ) -> None:
        """blocks: those of the rule itself, where they are more than rows of the network."""
        super().__init__()
        if classes < 2:
            raise UserError(f"A classifier needs at least 2 classes, but the data has {classes}.")
        self.classes = classes
        self.read_out = read_out
        self.blocks = nn.ModuleList(network.blocks() if blocks is None else blocks)
        self.register_buffer("best_layer", torch.tensor(len(self.blocks) - 1))
        if isinstance(read_out, int) and not -len(self.blocks) <= read_out < len(self.blocks):
            raise UserError(f"read_out {read_out} is no layer of a network with {len(self.blocks)} layers.")

    def block(self, layer: int) -> Block:
        block = self.blocks[layer]
        assert isinstance(block, Block)
        return block

    @classmethod
    def unsupported_reason(cls, network: Network, classes: int) -> str | None:
        """Why the rule cannot train this network, in one sentence; None if it can."""
        refused = {row.kind for row in network.rows} - cls.info.supports
        if not refused:
            return None
        return (
            f"{cls.info.title} trains {' and '.join(sorted(cls.info.supports))} layers only, but network "
            f"{network.name!r} has {' and '.join(sorted(refused))} layers; choose another network."
        )

    @property
    def passes(self) -> int:
        """Forward passes for one prediction."""
        return self.classes if self.info.passes == "C" else int(self.info.passes)

    def stages(self, epochs: int) -> list[Stage]:
        """The parts of the training, in order: all blocks at once, or one after the other."""
        depth = len(self.blocks)
        if self.layer_order == "joint":
            return [Stage("joint", tuple(range(depth)), epochs)]
        if self.greedy_epochs == "each":
            spans = [epochs] * depth
        else:
            spans = [epochs // depth + (layer < epochs % depth) for layer in range(depth)]
        return [Stage(f"layer {layer}", (layer,), span) for layer, span in enumerate(spans)]

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

    def training_inputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The input of the first block, and the labels that go with it."""
        return batch.x, batch.y

    def layer_step(self, layer: int, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Forward of one block on its input h, local loss, `backward()`.

        Returns the loss and the detached input of the next block, both computed before the step.
        """
        raise UserError(f"{self.info.title} has no local step, so its layers cannot be trained one by one.")

    def forward_block(self, layer: int, h: Tensor) -> Tensor:
        """The input of the next block, from the input of this one."""
        out: Tensor = self.blocks[layer](h)
        return out

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        """Yields (group, loss) as soon as the gradients of a group are complete; the loop then steps it."""
        h, y = self.training_inputs(batch)
        yield from self.train_blocks(h, y, stage, max(stage.blocks, default=-1) + 1)

    def train_blocks(
        self, h: Tensor, y: Tensor, stage: Stage, depth: int
    ) -> Generator[tuple[str, Tensor], None, Tensor]:
        """Takes h through the first `depth` blocks, those of the stage learning by `layer_step`.

        Yields like `update` and returns what the last block hands on. Only one block's graph is alive at any
        moment.
        """
        for layer in range(depth):
            if layer in stage.blocks:
                loss, h = self.layer_step(layer, h, y)
                yield group_name(layer), loss
            else:
                with torch.no_grad():
                    h = self.forward_block(layer, h)
        return h

    def after_step(self, group: str) -> None:
        """What follows an optimiser step of a group: renormalisation, moving averages."""

    def reduced_buffers(self) -> list[Tensor]:
        """Sums and counts of the batch that workers add up before `after_step`."""
        return []

    def diagnostics(self) -> dict[str, float]:
        """Numbers worth watching, by name; the loop records them after every epoch."""
        return {}

    @abstractmethod
    def layer_scores(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yields (layer, scores [B, C]) lazily, in order, for the layers that have scores."""

    def digest(self, x: Tensor) -> Tensor:
        """All that a stage with `digests` needs of inputs [B, ...]: [B, D]."""
        raise NotImplementedError

    def digest_scores(self, digest: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yields what `layer_scores` would for the inputs of these digests [B, D]."""
        raise NotImplementedError

    def observe_validation(self, accuracy: dict[int, float]) -> None:
        """Told the accuracy of each layer on the validation split after every epoch."""
        if accuracy:
            self.best_layer.fill_(max(accuracy, key=lambda layer: (accuracy[layer], layer)))

    @property
    def read_out_layers(self) -> Sequence[int]:
        """The layers that have a say in the read-out."""
        if self.read_out == "mean":
            return range(len(self.blocks))
        if self.read_out == "best":
            return [int(self.best_layer)]
        return [(-1 if self.read_out == "last" else self.read_out) % len(self.blocks)]

    def combine_scores(self, scores: Mapping[int, Tensor]) -> Tensor:
        """The final scores [B, C], from those of the layers."""
        return torch.stack([scores[layer] for layer in self.read_out_layers if layer in scores]).mean(0)

    def forward(self, x: Tensor) -> Tensor:
        """The final scores [B, C], by the chosen read-out; layers above the last voter are not computed."""
        read_out_layers, found = self.read_out_layers, {}
        for layer, scores in self.layer_scores(x):
            if layer in read_out_layers:
                found[layer] = scores
            if layer >= max(read_out_layers):
                break
        if not found:
            raise UserError(
                f"Layer {max(read_out_layers)} of {self.info.title} gives no scores, so it cannot be read out."
            )
        return self.combine_scores(found)


def group_name(layer: int) -> str:
    """The name of the group of parameters that belongs to one block."""
    return f"block{layer}"


def group_layer(group: str) -> int | None:
    """The layer that `group_name` named; None if the group is no block's."""
    number = group.removeprefix("block")
    return int(number) if number.isdigit() else None


methods: dict[str, type[Method]] = {}
"""Every learning rule by name; the keyword-only parameters of its `__init__` are its configuration."""


def register(method: type[Method]) -> type[Method]:
    methods[method.name] = method
    return method


def create_method(name: str, network: Network, classes: int, *, seed: int = 0, **options: Any) -> Method:
    """A method on fresh blocks, initialised by the seed alone; torch's global generator is left as it was."""
    if name not in methods:
        raise unknown("method", name, methods)
    method = methods[name]
    valid = [p.name for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in valid:
            raise unknown(f"parameter of method {name!r}:", option, valid)
    if unsupported_reason := method.unsupported_reason(network, classes):
        raise UserError(unsupported_reason)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initialisation"))
        return method(network, classes, **options)
