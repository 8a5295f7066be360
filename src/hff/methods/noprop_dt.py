"""NoProp-DT: every block learns independently to denoise an embedding of the label."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hff import functional
from hff.batch import Batch
from hff.errors import UserError, require
from hff.methods.method import Method, MethodInfo, ParameterSet, Stage, group_name, register
from hff.networks import AffineRow, Network, Shape
from hff.randomness import permutation


@register
class NoProp(Method):
    """Block t predicts the embedding of the label from the input and a noisy embedding.

    In training, the noise of each block is added to the true embedding, so blocks are independent. A
    prediction starts from pure noise, which all blocks denoise in turn. The network is the image path of
    each block.

    Args:
        steps: number of denoising steps (T in the paper); each step is a block with its own weights.
        embedding: fixed unit vectors (one_hot); learned vectors (learned); or learned images, initialized to
            the training image of each class that is nearest to the class mean (prototype).
        embedding_dim: length of learned embeddings.
        eta: weight of the denoising losses relative to the read-out's loss; affects learned embeddings only.
        snr_cap: signal-to-noise ratio after the last step; without a cap the last loss would dominate.
        blocks_per_step: number of random blocks that learn from each batch.
        width: units of the label path and of the layers that combine both paths.
        noise_samples: number of fixed noise samples that a prediction averages over; 0 means no noise.
        read_out: layers that predict; the scores of a layer are the read-out of its denoised embedding.
    """

    name = "noprop_dt"
    info = MethodInfo(
        title="NoProp-DT",
        paper="Li, Teh and Pascanu 2025, NoProp: Training Neural Networks without Full Back-propagation or "
        "Full Forward-propagation (arXiv 2503.24322)",
        passes="10",
        data_parallel=False,
        layer_local=False,
        hidden_auxiliary=True,
        steps_within_batch=True,
        autocast=False,
        learning_rate=3e-3,
    )
    embedding: Tensor
    noise: Tensor
    fixed_inputs = False

    def __init__(
        self,
        network: Network,
        classes: int,
        *,
        steps: int = 10,
        embedding: Literal["one_hot", "learned", "prototype"] = "one_hot",
        embedding_dim: int = 20,
        eta: float = 0.1,
        snr_cap: float = 100.0,
        blocks_per_step: Literal["all"] | int = "all",
        width: int = 256,
        noise_samples: int = 5,
        **options: Any,
    ) -> None:
        blocks_per_step = steps if blocks_per_step == "all" else blocks_per_step
        for option, value, least in (
            ("steps", steps, 1),
            ("embedding_dim", embedding_dim, 1),
            ("blocks_per_step", blocks_per_step, 1),
            ("width", width, 2),
            ("noise_samples", noise_samples, 0),
        ):
            require(value >= least, f"{option} must be at least {least}, not {value}.")
        for option, weight in {"eta": eta, "snr_cap": snr_cap}.items():
            require(weight > 0, f"{option} must be above 0, not {weight:g}.")
        shape = {"one_hot": (classes,), "learned": (embedding_dim,), "prototype": network.in_shape}[embedding]
        denoisers = [Denoiser(network, shape, classes, width) for _ in range(steps)]
        super().__init__(network, classes, denoisers, **options)
        self.steps = steps
        self.from_images = embedding == "prototype"
        self.dim = math.prod(shape)
        self.eta = eta
        self.blocks_per_step = blocks_per_step
        self.signal = signal_shares(steps, snr_cap)
        self.out = nn.Linear(self.dim, classes)
        if embedding == "one_hot":
            self.register_buffer("embedding", torch.eye(classes))
        else:
            self.embedding = nn.Parameter(nn.init.orthogonal_(torch.empty(classes, self.dim)))
        # Fixed noise, the same for every sample, makes scores deterministic and independent of the batch.
        draw = torch.randn if noise_samples else torch.zeros
        self.register_buffer("noise", draw(max(1, noise_samples), steps + 1, self.dim))

    @property
    def passes(self) -> int:
        return self.steps

    @torch.no_grad()
    def prepare(self, stage: Stage, batches: Callable[[], Iterable[Batch]]) -> None:
        if not self.from_images:
            return
        sums, counts = torch.zeros_like(self.embedding), torch.zeros_like(self.embedding[:, 0])
        for batch in batches():
            sums.index_add_(0, batch.y, batch.x.flatten(1))
            counts += torch.bincount(batch.y, minlength=self.classes)
        means = sums / counts.unsqueeze(1)
        nearest = torch.full_like(counts, torch.inf)
        for batch in batches():
            images = batch.x.flatten(1)
            distances = (images - means[batch.y]).square().sum(1)
            for label in batch.y.unique().tolist():
                best = distances.masked_fill(batch.y != label, torch.inf).argmin()
                if distances[best] < nearest[label]:
                    nearest[label] = distances[best]
                    self.embedding[label] = images[best]

    def parameter_groups(self, stage: Stage) -> dict[str, list[ParameterSet]]:
        groups = {group_name(t): [ParameterSet(list(self.blocks[t].parameters()))] for t in stage.blocks}
        shared = [*self.out.parameters(), *(p for p in [self.embedding] if isinstance(p, nn.Parameter))]
        return {**groups, "embedding": [ParameterSet(shared)]}

    def update(self, batch: Batch, stage: Stage) -> Iterator[tuple[str, Tensor]]:
        if len(batch.y) < 2:
            raise UserError(
                "NoProp-DT normalizes over the batch, but this one has a single sample; change batch_size."
            )
        order = permutation(len(stage.blocks), *batch.key, "blocks")[: self.blocks_per_step]
        chosen = sorted(stage.blocks[i] for i in order.tolist())
        for block in chosen:
            loss = self.denoising_loss(block, batch)
            loss.backward()
            yield group_name(block), loss.detach()
            # Shared parameters are updated with each block, by its loss and by the read-out's loss.
            loss = functional.cross_entropy(self.out(self.noisy(self.steps, batch, block)), batch.y)
            loss.backward()
            yield "embedding", loss.detach()

    def denoising_loss(self, block: int, batch: Batch) -> Tensor:
        """T/2 eta (SNR(t) - SNR(t-1)) |u_t - u_y|^2, mean over samples; block 0 has t = 1."""
        before, after = (share / (1 - share) for share in self.signal[block : block + 2])
        guess = self.guess(block, batch.x, self.noisy(block, batch, block))
        distance = (guess - self.embedding[batch.y]).square().sum(1).mean()
        return 0.5 * self.steps * self.eta * (after - before) * distance

    def noisy(self, step: int, batch: Batch, block: int) -> Tensor:
        """The embeddings of the labels with the noise level of a step [B, D], drawn for one block."""
        share = self.signal[step]
        noise = batch.normal(self.dim, f"noise {step} of block {block}")
        noisy: Tensor = math.sqrt(share) * self.embedding[batch.y] + math.sqrt(1 - share) * noise
        return noisy

    def guess(self, block: int, x: Tensor, z: Tensor) -> Tensor:
        """The mean embedding [N, D], weighted by a block's class probabilities for x and z [N, D]."""
        scores: Tensor = self.blocks[block](x, z)
        return torch.softmax(scores, 1) @ self.embedding

    def layer_scores(self, x: Tensor, depth: int = 0) -> Iterator[tuple[int, Tensor]]:
        # [N, D] with N = noise samples times B: all B rows of the first noise sample, then the next.
        noise = [draws.repeat_interleave(len(x), 0) for draws in self.noise.unbind(1)]
        z = noise[0]
        for block in range(self.steps):
            toward, keep, noisy = denoising_weights(*self.signal[block : block + 2])
            z = toward * self.guess(block, x, z) + keep * z + noisy * noise[block + 1]
            yield block, self.out(z).view(-1, len(x), self.classes).mean(0)


class Denoiser(nn.Module):
    """Class scores [N, C] from inputs [B, *in_shape] and noisy embeddings [N, D], N a multiple of B.

    The network is the image path. Embeddings that are images have such a path too; others have one layer.
    """

    def __init__(self, network: Network, shape: Shape, classes: int, width: int) -> None:
        super().__init__()
        path = _normed_end(network, width)
        self.shape = shape
        self.image = nn.Sequential(*path.blocks())
        unit = AffineRow("linear", width, norm="batch")
        entry = path if len(shape) > 1 else Network("label path", shape, (unit,))
        ends = path.rows[-1].width, entry.rows[-1].width
        again = replace(unit, width=ends[1])
        self.label = nn.Sequential(*entry.blocks())
        self.residual = _stack(ends[1], again, replace(again, activation="identity"))
        scores = AffineRow("linear", classes, activation="identity")
        self.fusion = _stack(sum(ends), unit, replace(unit, width=width // 2), scores)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        image = self.image(x).repeat(len(z) // len(x), 1)
        label = self.label(z.view(-1, *self.shape))
        scores: Tensor = self.fusion(torch.cat([image, label + self.residual(label)], 1))
        return scores


def _normed_end(network: Network, width: int) -> Network:
    """The network with a last linear row with batch norm and no activation, added if it is missing."""
    last = network.rows[-1]
    assert isinstance(last, AffineRow)
    if (last.kind, last.norm, last.activation) == ("linear", "batch", "identity"):
        return network
    return replace(
        network, rows=(*network.rows, AffineRow("linear", width, norm="batch", activation="identity"))
    )


def _stack(inputs: int, *rows: AffineRow) -> nn.Sequential:
    return nn.Sequential(*Network("denoiser", (inputs,), rows).blocks())


def signal_shares(steps: int, snr_cap: float) -> Sequence[float]:
    """Share of the signal in the variance after 0 .. T steps [T + 1]: 1 - cos^2, from 0 to SNR = snr_cap."""
    last = math.atan(math.sqrt(snr_cap))
    return [math.sin(last * step / steps) ** 2 for step in range(steps + 1)]


def denoising_weights(before: float, after: float) -> tuple[float, float, float]:
    """Weights of guess, state and noise in a step from one share of the signal to the next.

    If the guess is the true embedding, the new state has the distribution of `NoProp.noisy`.
    """
    kept = before / after
    fresh = (1 - kept) / (1 - before)
    return (
        math.sqrt(after) * fresh,
        math.sqrt(kept) * (1 - after) / (1 - before),
        math.sqrt((1 - after) * fresh),
    )
