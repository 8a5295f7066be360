"""Maps of the feature space: prototypes and the features around them, in two dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from hff import functional
from hff.data import DataSet
from hff.errors import UserError, require, unknown
from hff.evaluation.accuracy import evaluation_mode
from hff.evaluation.evaluate import examples_of
from hff.methods import Method
from hff.methods.families.local import LocalMethod
from hff.methods.hff import HFF
from hff.modules.grid_pool import grid_pool
from hff.networks.block import module_at
from hff.prediction import open_run
from hff.randomness import permutation, seed_of
from hff.trained import evaluation_data, load_method
from hff.training import Run, pick_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Projection = Literal["auto", "umap", "tsne", "pca"]
TITLES = {"umap": "UMAP", "tsne": "t-SNE", "pca": "PCA"}
SAMPLES = 1000
SIDE = 4
"""The side of the grid to which maps are pooled, for layers without a head."""


@dataclass(frozen=True)
class LayerEmbedding:
    """The features of one layer after one epoch, in two dimensions."""

    layer: int
    epoch: float | None
    """The epoch of a kept checkpoint; None for the end of the training."""
    points: Tensor
    """The place of each sample [N, 2]."""
    prototypes: Tensor | None
    """The place of each prototype [C, P, 2]; None for rules without prototypes."""


@dataclass(frozen=True)
class Embedding:
    """The features of all layers in two dimensions."""

    projection: str
    """The kind of the projection: umap, tsne or pca."""
    labels: Tensor
    """The class of each sample [N]."""
    names: tuple[str, ...]
    """The names of the classes."""
    layers: tuple[LayerEmbedding, ...]
    split: str = "train"

    def figure(self) -> "Figure":
        """A figure with a row for each epoch and a panel for each layer."""
        from hff.explain.figures import draw_embedding

        return draw_embedding(self)


def embedding(
    source: str | Path | Run | Method,
    data: DataSet | None = None,
    *,
    projection: Projection = "auto",
    samples: int = SAMPLES,
    split: str = "train",
    epochs: Sequence[int] = (),
    seed: int = 0,
    data_dir: Path | None = None,
    device: str = "auto",
) -> Embedding:
    """Computes the places of prototypes and features in two dimensions, layer by layer.

    Prototypes and the directions of the features are projected together, so that distances between them mean
    the same as between features.

    Args:
        source: a run, the path of its folder, or a trained method.
        data: the data; that of the run if not given.
        projection: umap, tsne or pca; "auto" is UMAP if umap-learn is installed, and t-SNE otherwise.
        samples: the number of samples, drawn at random from the split.
        split: the split that the samples are drawn from.
        epochs: epochs whose checkpoints were kept (`keep_checkpoints`), to show before the end of training.
        seed: the seed of the projection and of the samples.
        data_dir: the folder of data files.
        device: the device to compute on.
    """
    if projection not in get_args(Projection):
        raise unknown("projection", projection, get_args(Projection))
    require(samples >= 8, f"An embedding needs at least 8 samples, not {samples}.")
    chosen_projection = _available(projection)
    methods: list[tuple[float | None, Method]]
    if isinstance(source, Method):
        require(data is not None, "Pass the data along with the method.")
        require(not epochs, "A method has no checkpoints of earlier epochs; pass its run.")
        methods = [(None, source)]
    else:
        run = open_run(source)
        data, _ = evaluation_data(run, data=data, data_dir=data_dir)
        methods = [*((epoch, load_method(run, epoch=epoch)) for epoch in epochs), (None, load_method(run))]
    assert data is not None
    reason = unsupported_reason(methods[-1][1])
    if reason:
        raise UserError(reason)
    examples = examples_of(data, split)
    index = permutation(len(examples), seed, "embedding")[:samples].sort().values
    x = data.preprocessing(examples.fetch(index))
    layers = []
    for epoch, method in methods:
        method.to(pick_device(device))
        for layer, (features, prototypes) in enumerate(layer_features(method, x)):
            layers.append(_embedded(layer, epoch, features, prototypes, chosen_projection, seed))
    return Embedding(chosen_projection, examples.labels[index], data.classes, tuple(layers), split)


def unsupported_reason(method: Method) -> str | None:
    """Why the features of a method cannot be shown, in one sentence; None if they can."""
    if method.fixed_inputs and not method.info.needs_negatives:
        return None
    return (
        f"The features of {method.info.title} depend on a label that is shown with the input, so they have "
        "no embedding of their own."
    )


def layer_features(method: Method, x: Tensor, batch_size: int = 250) -> list[tuple[Tensor, Tensor | None]]:
    """The features [N, D] of each layer as unit vectors, and its prototypes [C, P, D] if it has any."""
    device = method.best_layer.device
    collected: list[list[Tensor]] = [[] for _ in method.blocks]
    with evaluation_mode(method):
        for part in x.split(batch_size):
            h = method.stem(part.to(device))
            for layer in range(len(method.blocks)):
                features = method.features(layer, h) if isinstance(method, LocalMethod) else None
                out = method.blocks[layer](h) if features is None else method.next_input(layer, features, h)
                collected[layer].append(_vector(method, layer, out if features is None else features).cpu())
                h = out
        prototypes = [
            module_at(method.prototypes, layer)().detach().cpu() if isinstance(method, HFF) else None
            for layer in range(len(method.blocks))
        ]
    return [(torch.cat(each), own) for each, own in zip(collected, prototypes, strict=True)]


def _vector(method: Method, layer: int, features: Tensor) -> Tensor:
    """The direction of the features [B, D]: those that are compared with prototypes, or a pooled map."""
    if isinstance(method, HFF):
        taken = method.head_input(layer, features)
        vector: Tensor = module_at(method.heads, layer)(taken)
    else:
        cells = (min(SIDE, features.shape[2]), min(SIDE, features.shape[3])) if features.dim() == 4 else None
        vector = (features if cells is None else grid_pool(features, cells)).flatten(1)
    return functional.project(vector)


def _embedded(
    layer: int, epoch: float | None, features: Tensor, prototypes: Tensor | None, projection: str, seed: int
) -> LayerEmbedding:
    count = len(features)
    together = features if prototypes is None else torch.cat([features, prototypes.flatten(0, 1)])
    places = project(together, projection, seed)
    return LayerEmbedding(
        layer,
        epoch,
        places[:count],
        None if prototypes is None else places[count:].unflatten(0, prototypes.shape[:2]),
    )


def project(vectors: Tensor, projection: str, seed: int = 0) -> Tensor:
    """Projects unit vectors [N, D] to two dimensions [N, 2] with umap, tsne or pca."""
    if projection == "pca":
        centered = (vectors - vectors.mean(0)).double()
        _, _, directions = torch.linalg.svd(centered, full_matrices=False)
        # The sign of a direction is arbitrary, so the largest entry is made positive.
        main = directions[:2] * directions[:2].gather(1, directions[:2].abs().argmax(1, keepdim=True)).sign()
        places = centered @ main.T
        return torch.nn.functional.pad(places, (0, 2 - places.shape[1])).float()
    number = seed_of(seed, "embedding") % 2**31
    if projection == "tsne":
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (len(vectors) - 1) / 3)
        fit = TSNE(perplexity=perplexity, init="pca", metric="euclidean", random_state=number)
        return torch.from_numpy(fit.fit_transform(vectors.numpy())).float()
    umap = _umap()
    neighbors = min(15, len(vectors) - 1)
    fit = umap.UMAP(n_neighbors=neighbors, metric="euclidean", random_state=number, n_jobs=1)
    return torch.from_numpy(fit.fit_transform(vectors.numpy())).float()


def _available(projection: str) -> str:
    if projection == "auto":
        from importlib.util import find_spec

        return "umap" if find_spec("umap") else "tsne"
    if projection == "umap":
        _umap()
    return projection


def _umap() -> Any:
    try:
        import umap
    except ImportError:
        raise UserError(
            "UMAP needs umap-learn; install it (pip install 'hff[umap]'), or choose tsne or pca."
        ) from None
    return umap
