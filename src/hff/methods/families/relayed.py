"""Shared by rules that relay the error of the output from block to block through feedback weights."""

from collections.abc import Iterator

from torch import Tensor, nn

from hff.batch import Batch
from hff.methods.families.top_error import TopErrorMethod
from hff.methods.method import Stage
from hff.modules.feedback import Pass


class RelayedMethod(TopErrorMethod):
    """A subclass sets `feedback`, one module for each block above the first; it may override `relay`."""

    feedback: nn.ModuleList

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        passes: list[Pass] = []
        h = self.training_inputs(batch)
        for layer in range(len(self.blocks)):
            passes.append(Pass(self.affine_block(layer), h))
            h = passes[-1].out
        loss, error = self.top_error(h, batch.y)
        while passes:
            done = passes.pop()
            at_map = done.learn(error)
            # Nothing learns below the first block.
            if passes:
                error = done.down(self.relay(len(passes), at_map))
        yield "network", loss

    def relay(self, layer: int, error: Tensor) -> Tensor:
        """Relays an error from the output of a block's affine map to its input."""
        below: Tensor = self.feedback[layer - 1](error)
        return below
