"""Predictions: the class of each input according to a trained method and to each of its layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hff.data import Preprocessing
from hff.data.readers.images import SUFFIXES
from hff.errors import UserError
from hff.evaluation.accuracy import evaluation_mode
from hff.experiment import load_method
from hff.methods import Method
from hff.run_group import RunGroup
from hff.training import Run, pick_device

Files = str | Path | Sequence[str | Path]
Arrays = Tensor | npt.NDArray[Any] | Sequence[Any]


@dataclass(frozen=True)
class LayerPrediction:
    """The class that one layer predicts."""

    layer: int
    label: str | int
    """The name of the class, or its index if the names are not known."""
    index: int
    score: float


@dataclass(frozen=True)
class Prediction:
    """The predicted class of one input."""

    label: str | int
    """The name of the class, or its index if the names are not known."""
    index: int
    score: float
    layers: tuple[LayerPrediction, ...]
    """The prediction of each layer that has scores, in order."""
    file: Path | None = None
    """The image file; None if the input was an array."""


def predict(
    source: str | Path | Run | Method,
    inputs: Files | Arrays,
    *,
    device: str = "auto",
    batch_size: int = 64,
    preprocessing: Preprocessing | None = None,
    classes: Sequence[str] | None = None,
) -> list[Prediction]:
    """Predicts the class of images or rows of a table.

    Args:
        source: a run, the path of its folder, or a trained method.
        inputs: image files and folders of them, or the values of the inputs as they are stored in the data
            set, before preprocessing: images [N, C, H, W], [N, H, W, C] or, if they are gray, [N, H, W], or
            the rows of a table [N, D]. If the source is a method and there is no preprocessing, tensors are
            passed to the network as they are.
        device: the device to compute on. With "auto", a run uses the fastest one, and a method stays on the
            device it is on.
        batch_size: the number of inputs in a batch.
        preprocessing: replaces that of the run; for a method, the preprocessing of its training data.
        classes: the names of the classes. The default is those of the run.

    Returns:
        One prediction per input, in order. A folder stands for all images in it, sorted by path.
    """
    if batch_size < 1:
        raise UserError(f"The batch size must be at least 1, not {batch_size}.")
    if isinstance(source, Method):
        method = source
        chosen = method.best_layer.device if device == "auto" else pick_device(device)
    else:
        run = open_run(source)
        method, chosen = load_method(run), pick_device(device)
        preprocessing, classes = preprocessing or run.preprocessing, classes or run.classes
    if classes is not None and len(classes) != method.classes:
        raise UserError(f"The method predicts {method.classes} classes, but {len(classes)} names are given.")
    labels: Sequence[str | int] = range(method.classes) if classes is None else classes
    method.to(chosen)
    predictions: list[Prediction] = []
    with evaluation_mode(method):
        for x, files in _batches(inputs, preprocessing, batch_size):
            scores = dict(method.layer_scores(x.to(chosen)))
            final = _best(method.combine_scores(scores))
            layers = {layer: _best(each) for layer, each in scores.items()}
            for i, file in enumerate(files):
                index, score = final[i]
                by_layer = tuple(
                    LayerPrediction(layer, labels[best[i][0]], *best[i]) for layer, best in layers.items()
                )
                predictions.append(Prediction(labels[index], index, score, by_layer, file))
    return predictions


def open_run(source: str | Path | Run) -> Run:
    """The run to predict with. A folder of runs with several seeds is refused."""
    if isinstance(source, Run):
        return source
    if RunGroup.exists(source):
        example = next(iter(RunGroup(source).runs().values()), None)
        hint = f", such as {example.folder}" if example else " after training it"
        raise UserError(f"{source} contains runs with several seeds; choose one of them{hint}.")
    return Run.open(source)


def image_files(paths: Files) -> list[Path]:
    """The given files, with each folder replaced by all images in it, sorted by path."""
    files: list[Path] = []
    for path in map(Path, [paths] if isinstance(paths, str | Path) else paths):
        if not path.exists():
            raise UserError(f"There is no file or folder {path}.")
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
            if not inside:
                raise UserError(f"The folder {path} contains no images.")
            files += inside
        else:
            files.append(path)
    return files


def _batches(
    inputs: Files | Arrays, preprocessing: Preprocessing | None, size: int
) -> Iterator[tuple[Tensor, Sequence[Path | None]]]:
    """Batches of preprocessed inputs [B, ...], each with its files."""
    if _are_files(inputs):
        if preprocessing is None:
            raise UserError(
                "Image files need the preprocessing of the training data; pass it as `preprocessing`."
            )
        files = image_files(inputs)  # type: ignore[arg-type]
        for start in range(0, len(files), size):
            batch = files[start : start + size]
            yield torch.stack([preprocessing.read_image(file) for file in batch]), batch
        return
    x = _tensor(inputs)  # type: ignore[arg-type]
    if preprocessing is not None:
        x = _channels_first(x, preprocessing.size)
    for part in x.split(size) if len(x) else ():
        yield part.float() if preprocessing is None else preprocessing(part), [None] * len(part)


def _are_files(inputs: Files | Arrays) -> bool:
    if isinstance(inputs, str | Path):
        return True
    return isinstance(inputs, Sequence) and len(inputs) > 0 and isinstance(inputs[0], str | Path)


def _tensor(inputs: Arrays) -> Tensor:
    if isinstance(inputs, Tensor):
        return inputs
    if isinstance(inputs, Sequence) and len(inputs) > 0 and isinstance(inputs[0], Tensor):
        return torch.stack(list(inputs))
    try:
        array = np.asarray(inputs)
    except ValueError:
        raise UserError("All inputs must have the same shape.") from None
    if array.dtype.kind not in "biuf":
        raise UserError(f"The inputs must be numbers, image files or folders, not {array.dtype}.")
    if array.dtype.kind == "u" and array.itemsize > 1:
        # Many torch operations do not support wide unsigned integers.
        array = array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(array))


def _channels_first(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Inputs in the layout of the network [N, *shape]."""
    if tuple(x.shape[1:]) == shape or len(shape) != 3:
        return x
    channels, height, width = shape
    if tuple(x.shape[1:]) == (height, width, channels):
        return x.permute(0, 3, 1, 2)
    if channels == 1 and tuple(x.shape[1:]) == (height, width):
        return x.unsqueeze(1)
    return x


def _best(scores: Tensor) -> list[tuple[int, float]]:
    """The best class of each row of scores [B, C] as (index, score)."""
    best = scores.max(1)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
