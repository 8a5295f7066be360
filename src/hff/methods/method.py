"""The contract of a learning rule, and the registry of all rules."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hff.batch import Batch
from hff.config import parse_options
from hff.data import Preprocessing
from hff.errors import UserError, require, require_seed
from hff.methods.early_exit import EarlyExit, NarrowingScores, chosen_exit, first_sure_layers
from hff.methods.facts import Group, group_of, has_hidden_units, prediction_parameters
from hff.methods.info import Form as Form
from hff.methods.info import MethodInfo as MethodInfo
from hff.methods.info import ParameterSet as ParameterSet
from hff.methods.info import Stage as Stage
from hff.methods.info import group_layer as group_layer
from hff.methods.info import group_name as group_name
from hff.methods.input_check import check_inputs_of_layer_scores
from hff.methods.modes import prediction_mode
from hff.networks import AffineBlock, Block, Network, Shape
from hff.networks.block import module_at
from hff.randomness import seed_of
from hff.registry import Registry

ReadOut = Literal["last", "best", "mean"] | int


class Method(nn.Module):
    """A learning rule with the blocks, heads and prototypes that it trains.

    A layer is defined by `features`, which its scores and loss use, and `next_input`, the input of the next
    block. A local rule derives from `LocalMethod` and adds scores and a loss. Any other rule overrides
    `update` and writes `.grad` itself, as means over the samples of the batch.

    Args:
        read_out: layers that predict: the last one, the best one on the validation split, the mean of all, or
            the layer with this number.
    """

    name: ClassVar[str]
    info: ClassVar[MethodInfo]
    views: int = 1
    """Number of views of each sample in a batch, each with its own augmentation."""
    fixed_inputs: bool = True
    """Whether the input of the first block depends on the sample only, not on its label or on noise."""
    in_shape: Shape | None = None
    """The shape of one input of the network; None if the method was not made by `create_method`."""
    preprocessing: Preprocessing | None = None
    """The preprocessing of the data that `fit` trained on, which `predict` applies."""
    closed_form: bool = True
    """Whether layers whose gradients have a closed form compute them without autograd; set by the trainer."""
    class_names: tuple[str, ...] | None = None
    """The names of the classes of that data."""
    early_exit: EarlyExit | None = None
    """The thresholds of `predict(x, early_exit=True)`, from `calibrate_exit`; training removes them."""
    best_layer: Tensor
    _entered: "Stage | None" = None
    """The stage whose modes the blocks have; None if they were changed since."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_inputs_of_layer_scores(cls)

    def __init__(
        self,
        network: Network,
        classes: int,
        blocks: Sequence[nn.Module] | None = None,
        *,
        read_out: ReadOut = "last",
    ) -> None:
        """blocks: the blocks of the rule, if they differ from those of the network."""
        super().__init__()
        require(classes >= 2, f"A classifier needs at least 2 classes, but the data has {classes}.")
        self.classes = classes
        self.read_out = read_out
        self.blocks = nn.ModuleList(network.blocks() if blocks is None else blocks)
        self.register_buffer("best_layer", torch.tensor(len(self.blocks) - 1))
        if isinstance(read_out, int) and not -len(self.blocks) <= read_out < len(self.blocks):
            raise UserError(f"read_out {read_out} is not a layer: the network has {len(self.blocks)} layers.")

    @classmethod
    def unsupported_reason(cls, network: Network, classes: int) -> str | None:
        """Why the rule cannot train this network, in one sentence; None if it can."""
        supported = cls.info.supports
        others = set() if supported == "any" else {row.kind for row in network.rows} - supported
        if supported == "any" or not others:
            return None
        return (
            f"{cls.info.title} trains {' and '.join(sorted(supported))} layers only, but network "
            f"{network.name!r} has {' and '.join(sorted(others))} layers; choose another network."
        )

    @property
    def passes(self) -> int:
        """Forward passes for one prediction."""
        return self.classes if self.info.passes == "C" else int(self.info.passes)

    @property
    def layer_local(self) -> bool:
        """Whether blocks learn by `layer_step` only, so that layers can be pipelined."""
        return self.info.layer_local

    @property
    def top_signal(self) -> bool:
        """Whether the update of a block depends on the blocks above it."""
        return self.info.top_signal

    @property
    def gradient_reach(self) -> int | Literal["all"]:
        """How many blocks below its own block the gradient of a loss reaches."""
        return self.info.gradient_reach

    @property
    def hidden_auxiliary(self) -> bool:
        """Whether a block learns through further layers of its own that have hidden units."""
        declared = self.info.hidden_auxiliary
        heads = getattr(self, "heads", ())
        return any(map(has_hidden_units, heads)) if declared is None else declared

    @property
    def group(self) -> Group:
        """What the rule is allowed to use, from strictly local to backprop."""
        return group_of(self)

    @property
    def prediction_parameters(self) -> int:
        """The number of parameters that a prediction uses; training may have more."""
        return prediction_parameters(self)

    @property
    def samples_interact(self) -> bool:
        """Whether the samples of a batch affect each other, by the loss or by batch norm."""
        normed = any(isinstance(module, _BatchNorm) for module in self.modules())
        return normed or not self.info.data_parallel

    @property
    def steps_within_batch(self) -> bool:
        """Whether parameters are updated while gradients of the same batch are still being computed."""
        return self.info.steps_within_batch

    def stages(self, epochs: int) -> list[Stage]:
        """The stages of training, in order."""
        return [Stage("joint", tuple(range(len(self.blocks))), epochs)]

    def prepare(self, stage: Stage, batches: Callable[[], Iterable[Batch]]) -> None:
        """Initializes from the data before a stage begins; `batches` iterates over the training split."""

    def enter(self, stage: Stage) -> None:
        """Sets training mode for the blocks that learn and evaluation mode for the frozen ones."""
        if self._entered is stage:
            return
        self.train()
        for layer, block in enumerate(self.blocks):
            block.train(layer in stage.blocks)
        self._entered = stage

    def train(self, mode: bool = True) -> Self:
        self._entered = None
        return super().train(mode)

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        """The parameters that learn in a stage, by the groups that `update` yields; one optimizer each."""
        return {
            group_name(layer): [ParameterSet(list(self.blocks[layer].parameters()))] for layer in stage.blocks
        }

    def block(self, layer: int) -> Block:
        # An assertion would take longer than a small operation of a layer.
        return cast(Block, module_at(self.blocks, layer))

    def affine_block(self, layer: int) -> AffineBlock:
        """The block of a layer, for rules that train affine layers only."""
        return cast(AffineBlock, module_at(self.blocks, layer))

    def stem(self, x: Tensor) -> Tensor:
        """The input of the first block, from the input of the network."""
        return x

    def features(self, layer: int, h: Tensor) -> Tensor:
        """The features that a layer's scores and loss use, from the input h [B, *in_shape] of its block."""
        return self.block(layer).activity(h)

    def next_input(self, layer: int, features: Tensor, h: Tensor) -> Tensor:
        """The input of the next block, from the features of this layer and the input h of its block."""
        out: Tensor = self.block(layer).dropout(features)
        return out

    def forward_block(self, layer: int, h: Tensor) -> Tensor:
        """The input of the next block, from the input of this one."""
        return self.next_input(layer, self.features(layer, h), h)

    def training_inputs(self, batch: Batch) -> Tensor:
        """The input of block `batch.depth`: the batch itself if it holds cached features."""
        return batch.x if batch.depth else self.stem(batch.x)

    def layer_step(self, layer: int, h: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Runs one block on its input h, computes its local loss and calls `backward()`.

        Returns the loss and the detached input of the next block, both computed before the optimizer step.
        """
        raise UserError(f"{self.info.title} has no local step, so its layers cannot be trained one by one.")

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        """Yields (group, loss) when the gradients of a group are complete; the trainer then steps it."""
        depth = max(stage.blocks, default=-1) + 1
        yield from self.train_blocks(self.training_inputs(batch), batch, stage, depth)

    def train_blocks(
        self, h: Tensor, batch: Batch, stage: Stage, depth: int
    ) -> Generator[tuple[str, Tensor], None, Tensor]:
        """Runs h through the first `depth` blocks; those of the stage learn by `layer_step`.

        Yields like `update` and returns the output of the last block. Only one block has a graph at a time.
        """
        for layer in range(batch.depth, depth):
            if layer in stage.blocks:
                loss, h = self.layer_step(layer, h, batch)
                yield group_name(layer), loss
            else:
                with torch.no_grad():
                    h = self.forward_block(layer, h)
        return h

    def after_step(self, group: str) -> None:
        """Called after an optimizer step of a group, for renormalization and moving averages."""

    def reduced_buffers(self) -> list[Tensor]:
        """Sums and counts of the batch that workers add up before `after_step`."""
        return []

    def diagnostics(self) -> dict[str, float]:
        """Numbers to monitor, by name; the training loop records them after every epoch."""
        return {}

    def final_diagnostics(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Numbers by name that need labeled data; recorded once, on the validation split after training."""
        return {}

    def frozen_depth(self, stage: Stage) -> int:
        """Number of lowest blocks whose output for a sample is the same in every epoch of a stage."""
        return min(stage.blocks, default=len(self.blocks)) if self.fixed_inputs else 0

    @torch.no_grad()
    def frozen_features(self, x: Tensor, depth: int) -> Tensor:
        """The input of block `depth`, from inputs [B, ...] of the network; the training loop caches it."""
        h = self.stem(x)
        for layer in range(depth):
            h = self.forward_block(layer, h)
        return h

    def scored_layers(self, depth: int) -> Sequence[int]:
        """The layers that `layer_scores` scores from the frozen features of this depth."""
        return range(min(depth, len(self.blocks) - 1), len(self.blocks))

    def reads_out_from(self, depth: int) -> bool:
        """Whether the read-out can be computed from the frozen features of this depth."""
        wanted = range(len(self.blocks)) if self.read_out == "best" else self.read_out_layers
        return set(wanted) <= set(self.scored_layers(depth))

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Yields (layer, scores [B, C]) lazily, in order, for the layers that have scores.

        By default only the last layer has scores: its output. With a depth above 0, x is the
        `frozen_features` of that depth, and only the `scored_layers` of that depth are scored.
        """
        h = x if depth else self.stem(x)
        for layer in range(depth, len(self.blocks)):
            h = self.blocks[layer](h)
        yield len(self.blocks) - 1, h

    def narrowing_scores(self, layers: Sequence[int], x: Tensor) -> NarrowingScores:
        """Yields (layer, scores [B, C]) lazily, in order, at least for these layers if they have scores.

        The caller may send back the indices [K] of the samples to continue with; only their scores are
        yielded from then on. By default, the other samples are still computed.
        """
        rows: Tensor | None = None
        for layer, scores in self.layer_scores(x):
            kept = yield layer, scores if rows is None else scores[rows]
            if kept is not None:
                rows = kept if rows is None else rows[kept]

    def observe_validation(self, accuracy: dict[int, float]) -> None:
        """Called after every epoch with the accuracy of each layer on the validation split."""
        if accuracy:
            self.best_layer.fill_(max(accuracy, key=lambda layer: (accuracy[layer], layer)))

    @property
    def read_out_layers(self) -> Sequence[int]:
        """The layers whose scores are combined into the prediction."""
        if self.read_out == "mean":
            return range(len(self.blocks))
        if self.read_out == "best":
            return [int(self.best_layer)]
        return [(-1 if self.read_out == "last" else self.read_out) % len(self.blocks)]

    def combine_scores(self, scores: Mapping[int, Tensor]) -> Tensor:
        """The final scores [B, C], from the scores of the layers."""
        found = [scores[layer] for layer in self.read_out_layers if layer in scores]
        return found[0] if len(found) == 1 else torch.stack(found).mean(0)

    def predict(self, x: Tensor, early_exit: EarlyExit | float | bool = False) -> Tensor:
        """The classes [B] of network inputs [B, ...], in evaluation mode and without gradients.

        Args:
            x: the inputs, after preprocessing.
            early_exit: whether the first layer that is sure enough predicts: thresholds from
                `calibrate_exit`, True for those in `self.early_exit`, or a probability between 0 and 1 as a
                plain threshold without a guarantee. False predicts by the read-out of the full network.
        """
        chosen = chosen_exit(self, early_exit)
        if chosen is not None:
            return self.predict_early(x, chosen)[0]
        with prediction_mode(self):
            return self(x).argmax(1)

    def predict_early(self, x: Tensor, early_exit: EarlyExit) -> tuple[Tensor, Tensor]:
        """The classes [B] like `predict`, and the layers [B] that predicted them."""
        self.check_inputs(x)
        with prediction_mode(self):
            return first_sure_layers(self, x, early_exit)

    def __call__(self, x: Tensor) -> Tensor:
        self.check_inputs(x)
        scores: Tensor = super().__call__(x)
        return scores

    def check_inputs(self, x: Tensor) -> None:
        """Refuses inputs of another type or shape than the network takes."""
        if not isinstance(x, Tensor):
            raise UserError(f"The method takes a tensor, not a {type(x).__name__}; hff.predict takes arrays.")
        dtype = next((p.dtype for p in self.parameters()), x.dtype)
        if x.dtype != dtype:
            raise UserError(f"The method takes inputs of type {dtype}, not {x.dtype}; convert them first.")
        if self.in_shape is not None and tuple(x.shape[1:]) != self.in_shape:
            shape = ", ".join(map(str, self.in_shape))
            raise UserError(f"The method takes inputs of shape [B, {shape}], not {list(x.shape)}.")

    def check_data(self, in_shape: Shape, classes: int, name: str) -> None:
        """Refuses data of another shape or number of classes than the method was made for."""
        if classes != self.classes:
            raise UserError(f"The method has {self.classes} classes, but data set {name!r} has {classes}.")
        if self.in_shape is not None and in_shape != self.in_shape:
            raise UserError(
                f"The method takes inputs of shape {list(self.in_shape)}, but those of data set {name!r} "
                f"have shape {list(in_shape)}."
            )

    def forward(self, x: Tensor) -> Tensor:
        """The final scores [B, C] of the chosen read-out; layers above it are not computed."""
        wanted, found = self.read_out_layers, {}
        for layer, scores in self.layer_scores(x):
            if layer in wanted:
                found[layer] = scores
            if layer >= max(wanted):
                break
        if not found:
            raise UserError(
                f"Layer {max(wanted)} of {self.info.title} has no scores; choose another read_out."
            )
        return self.combine_scores(found)


check_inputs_of_layer_scores(Method)


methods: Registry[type[Method]] = Registry("method", "hff.methods")
"""All learning rules by name; the keyword-only parameters of `__init__` are the options of a rule."""


def register(method: type[Method]) -> type[Method]:
    """Adds a method to the registry, under its `name`."""
    methods.add(method.name, method)
    return method


def create_method(name: str, network: Network, classes: int, *, seed: int = 0, **options: Any) -> Method:
    """A method on new blocks, initialized by the seed alone; torch's global generator is left unchanged."""
    cls = methods.find(name)
    options = parse_options(cls, options, f"method {name!r}")
    require(isinstance(network, Network), f"The network must come from create_network; it is {network!r}.")
    require(isinstance(classes, int), f"The number of classes must be a whole number, not {classes!r}.")
    require_seed(seed)
    if reason := cls.unsupported_reason(network, classes) or network.too_large():
        raise UserError(reason)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initialisation"))
        method = cls(network, classes, **options)
    method.in_shape = network.in_shape
    return method
