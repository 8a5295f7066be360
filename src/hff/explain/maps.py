"""Activation maps: which parts of an image speak for a class, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from hff.data import DataSet, Preprocessing
from hff.data.inputs import Arrays, Files, InputReader, Origin
from hff.errors import UserError, require, unknown
from hff.evaluation import Calibration, calibrate
from hff.evaluation.accuracy import evaluation_mode
from hff.evaluation.evaluate import examples_of
from hff.explain import contributions as exact
from hff.explain.answers import KINDS, Kind, answers_on
from hff.explain.contributions import Choose
from hff.explain.grad_cam import grad_cam
from hff.explain.occlusion import occlusion
from hff.methods import Method
from hff.methods.hff import HFF
from hff.prediction import open_run
from hff.trained import evaluation_data, load_method
from hff.training import Run, pick_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

How = Literal["auto", "exact", "grad_cam", "occlusion"]
LAYER, PREDICTION, LABEL = "layer", "prediction", "label"
"""Which class is explained: the one that each layer predicts, that the method predicts, or the true one."""
TITLES = {
    "exact": "exact contributions of positions to the score",
    "grad_cam": "Grad-CAM",
    "occlusion": "fall of the score if a patch is covered",
}
AT_ONCE = 32
"""The number of images that are explained at once."""


@dataclass(frozen=True)
class LayerMaps:
    """The maps of one layer for N images."""

    layer: int
    positions: Tensor
    """What each position contributes [N, H, W]. If the maps are exact, they sum to `scores`."""
    classes: Tensor
    """The explained class of each image [N]."""
    scores: Tensor
    """The score of that class in this layer [N]."""
    predicted: Tensor
    """The class that the layer predicts [N]; of the method, if the layer has no scores."""
    probabilities: Tensor | None
    """The calibrated probability of `predicted` [N]; None if the method is not calibrated."""
    constant: Tensor | None = None
    """The part of the score that is shared equally by all positions, from biases [N]; only if exact."""
    map_of: int | None = None
    """The layer whose map has these positions; None for the input image."""


@dataclass(frozen=True)
class ActivationMaps:
    """The activation maps of all layers for N images."""

    how: str
    """The kind of the maps: exact, grad_cam or occlusion."""
    images: Tensor
    """The images as the network sees them, from 0 to 1 [N, C, H, W]."""
    layers: tuple[LayerMaps, ...]
    predicted: Tensor
    """The class that the method predicts [N]."""
    names: tuple[str, ...]
    """The names of the classes."""
    labels: Tensor | None = None
    """The true class of each image [N]; None if it is not known."""
    titles: tuple[str, ...] = ()
    """What each image is called, such as its file."""

    def __len__(self) -> int:
        return len(self.images)

    def figure(self) -> "Figure":
        """A figure with a row for each image: the image, then the map of every layer over it."""
        from hff.explain.figures import draw_maps

        return draw_maps(self)

    def arrays(self) -> dict[str, Tensor]:
        """The images, and what was found in each layer by name, such as `layer0_positions`."""
        found = {"images": self.images, "predicted": self.predicted}
        if self.labels is not None:
            found["labels"] = self.labels
        for each in self.layers:
            for name in ("positions", "classes", "scores", "predicted"):
                found[f"layer{each.layer}_{name}"] = getattr(each, name)
        return found


def activation_maps(
    source: str | Path | Run | Method,
    inputs: Files | Arrays | None = None,
    *,
    of: str | int = LAYER,
    how: How = "auto",
    kind: Kind | None = None,
    count: int = 4,
    split: str = "test",
    data: DataSet | None = None,
    labels: Tensor | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    invert: bool = False,
    preprocessing: Preprocessing | None = None,
    calibration: Calibration | None = None,
) -> ActivationMaps:
    """Computes the activation maps of every layer for images.

    Args:
        source: a run, the path of its folder, or a trained method.
        inputs: image files and folders of them, or arrays, as `hff.predict` takes them. Leave them out to
            choose images of a `kind` from the data.
        of: the class to explain: "layer" is the class that each layer predicts, "prediction" the one that
            the method predicts, "label" the true one; or the name or number of a class.
        how: "exact" for HFF, "grad_cam" or "occlusion"; "auto" is the first of these that the method
            supports.
        kind: choose images that all layers classify right ("right"), that are corrected late ("late"), that
            are classified wrong ("wrong"), or whose true class has the lowest probability ("hardest").
        count: the number of images of that kind.
        split: the split to choose from.
        data: the data to choose from; that of the run if not given.
        labels: the true class of each image [N], if known.
        data_dir: the folder of data files.
        device: the device to compute on.
        invert: swap dark and bright in the images.
        preprocessing: replaces that of the run or of the data that the method was trained on.
        calibration: the scales that turn scores into probabilities; by default, those of the run, if any.
    """
    if how not in get_args(How):
        raise unknown("kind of activation map", how, get_args(How))
    if isinstance(source, Method):
        method = source
        chosen = method.best_layer.device if device == "auto" else pick_device(device)
    else:
        run = open_run(source)
        method, chosen = load_method(run), pick_device(device)
        calibration = calibration or run.calibration
    method.to(chosen)
    if (inputs is None) == (kind is None):
        raise UserError("Give either images or a kind of images: right, late, wrong or hardest.")
    titles: tuple[str, ...] = ()
    if kind is not None:
        if isinstance(source, Method):
            require(data is not None, "Pass the data to choose images from along with the method.")
        else:
            data, _ = evaluation_data(run, data=data, data_dir=data_dir)
        assert data is not None
        picked = telling(method, data, kind, count, split=split, calibration=calibration)
        inputs, labels, preprocessing = picked.inputs, picked.labels, data.preprocessing
        titles = tuple(f"{split} {number}" for number in picked.numbers.tolist())
    assert inputs is not None
    preprocessing = preprocessing or method.preprocessing
    names = method.class_names or tuple(map(str, range(method.classes)))
    reader = InputReader(preprocessing, batch_size=AT_ONCE, invert=invert)
    parts: list[ActivationMaps] = []
    start = 0
    with evaluation_mode(method):
        for x, origins in reader.batches(inputs):
            own = None if labels is None else labels[start : start + len(x)]
            start += len(x)
            part = _explained(method, x.to(chosen), of, how, names, own, calibration, preprocessing)
            parts.append(replace(part, titles=tuple(map(_title, origins))))
    if not parts:
        raise UserError("There are no images to explain.")
    found = _joined(parts)
    return replace(found, titles=titles) if titles else found


@dataclass(frozen=True)
class Picked:
    """Images that were chosen from a split."""

    inputs: Tensor
    """The stored values [N, ...], before preprocessing."""
    labels: Tensor
    """The true classes [N]."""
    numbers: Tensor
    """The numbers of the examples in the split [N]."""


def telling(
    method: Method,
    data: DataSet,
    kind: Kind,
    count: int = 4,
    *,
    split: str = "test",
    calibration: Calibration | None = None,
) -> Picked:
    """Chooses images of a kind from a split; the parameters are those of `activation_maps`."""
    if kind not in KINDS:
        raise unknown("kind of images", kind, KINDS)
    device = method.best_layer.device
    scales = calibration or calibrate(method, data, device=device)
    answers = answers_on(method, data, split, calibration=scales, device=device)
    return picked(data, split, answers.choose(kind, count), kind)


def picked(data: DataSet, split: str, numbers: Tensor, kind: Kind) -> Picked:
    """The examples of a split with these numbers, which must not be empty."""
    if len(numbers) == 0:
        raise UserError(f"The {split} split has no image of this kind ({KINDS[kind]}).")
    examples = examples_of(data, split)
    return Picked(examples.fetch(numbers).float(), examples.labels[numbers], numbers)


def _explained(
    method: Method,
    x: Tensor,
    of: str | int,
    how: How,
    names: Sequence[str],
    labels: Tensor | None,
    calibration: Calibration | None,
    preprocessing: Preprocessing | None,
) -> ActivationMaps:
    if x.dim() != 4:
        raise UserError("Activation maps need images, but this run was trained on rows of a table.")
    predicted = method(x).argmax(1)
    choose = _chooser(of, names, predicted, labels)
    used, found = _maps(method, x, choose, how)
    scored = dict(method.layer_scores(x))
    layers = []
    for each in found:
        scores = scored.get(each.layer)
        winner = predicted if scores is None else scores.argmax(1)
        probability = None
        if calibration is not None:
            layer = None if scores is None else each.layer
            full = method.combine_scores(scored) if scores is None else scores
            probability = calibration.probabilities(full, layer).gather(1, winner.unsqueeze(1))[:, 0].cpu()
        layers.append(
            LayerMaps(
                each.layer,
                each.positions.cpu(),
                each.classes.cpu(),
                each.scores.cpu(),
                winner.cpu(),
                probability,
                None if each.constant is None else each.constant.cpu(),
                each.map_of,
            )
        )
    return ActivationMaps(
        used,
        shown_images(x.cpu(), preprocessing),
        tuple(layers),
        predicted.cpu(),
        tuple(names),
        labels,
    )


@dataclass(frozen=True)
class _Found:
    layer: int
    positions: Tensor
    classes: Tensor
    scores: Tensor
    constant: Tensor | None
    map_of: int | None


def _maps(method: Method, x: Tensor, choose: Choose, how: How) -> tuple[str, list[_Found]]:
    """The maps, and how they were computed."""
    if how == "exact" or (how == "auto" and isinstance(method, HFF)):
        if not isinstance(method, HFF):
            raise UserError(
                f"Exact maps are defined for hff, not for {method.name}; choose grad_cam or occlusion."
            )
        reason = exact.unsupported_reason(method)
        if reason is None:
            return "exact", [
                _Found(
                    each.layer,
                    each.positions,
                    each.classes,
                    each.scores.gather(1, each.classes.unsqueeze(1))[:, 0],
                    each.constant,
                    each.map_of,
                )
                for each in exact.contributions(method, x, choose)
            ]
        require(how == "auto", reason)
    if how in ("auto", "grad_cam"):
        try:
            return "grad_cam", [
                _Found(layer, map_, classes, scores.gather(1, classes.unsqueeze(1))[:, 0], None, layer)
                for layer, scores, classes, map_ in grad_cam(method, x, choose)
            ]
        except UserError:
            if how == "grad_cam":
                raise
    return "occlusion", [
        _Found(layer, map_, classes, scores.gather(1, classes.unsqueeze(1))[:, 0], None, None)
        for layer, scores, classes, map_ in occlusion(method, x, choose)
    ]


def _chooser(of: str | int, names: Sequence[str], predicted: Tensor, labels: Tensor | None) -> Choose:
    if of in names:
        index = list(names).index(str(of))
    elif isinstance(of, int) and not isinstance(of, bool) and 0 <= of < len(names):
        index = of
    elif of == LAYER:
        return lambda layer, scores: scores.argmax(1)
    elif of == PREDICTION:
        return lambda layer, scores: predicted
    elif of == LABEL:
        if labels is None:
            raise UserError("The true classes of these images are not known; explain the prediction instead.")
        own = labels.to(predicted.device)
        return lambda layer, scores: own
    else:
        raise unknown("class", str(of), [*names, LAYER, PREDICTION, LABEL])
    return lambda layer, scores: torch.full_like(predicted, index)


def shown_images(x: Tensor, preprocessing: Preprocessing | None) -> Tensor:
    """Network inputs [N, C, H, W] as images from 0 to 1, without the normalization."""
    if preprocessing is None:
        low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
        return (x - low) / (high - low).clamp_min(1e-6)
    mean, std = (torch.tensor(each).view(1, -1, 1, 1) for each in (preprocessing.mean, preprocessing.std))
    return (x * std + mean).clamp(0, 1).float()


def _title(origin: Origin) -> str:
    if origin.file is None:
        return ""
    return origin.file.name if origin.row is None else f"{origin.file.name}, row {origin.row}"


def _joined(parts: Sequence[ActivationMaps]) -> ActivationMaps:
    """The maps of several batches as one."""
    first = parts[0]
    if len(parts) == 1:
        return first

    def cat(tensors: Sequence[Tensor | None]) -> Tensor | None:
        return None if tensors[0] is None else torch.cat([each for each in tensors if each is not None])

    def all_of(name: str, i: int) -> Tensor | None:
        return cat([getattr(part.layers[i], name) for part in parts])

    layers = []
    for i, layer in enumerate(first.layers):
        fields = ("positions", "classes", "scores", "predicted", "probabilities", "constant")
        values: dict[str, Any] = {name: all_of(name, i) for name in fields}
        layers.append(LayerMaps(layer=layer.layer, map_of=layer.map_of, **values))
    return ActivationMaps(
        first.how,
        torch.cat([part.images for part in parts]),
        tuple(layers),
        torch.cat([part.predicted for part in parts]),
        first.names,
        cat([part.labels for part in parts]),
        tuple(title for part in parts for title in part.titles),
    )
