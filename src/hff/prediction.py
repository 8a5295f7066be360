"""Predictions: the class of each input according to a trained method and to each of its layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from hff.data import Preprocessing
from hff.data.inputs import Arrays, Files, InputReader, Origin
from hff.errors import UserError
from hff.evaluation import Calibration
from hff.evaluation.accuracy import evaluation_mode
from hff.methods import Method
from hff.run_group import RunGroup
from hff.trained import calibration_of, load_method
from hff.training import Run, pick_device


@dataclass(frozen=True)
class ClassProbability:
    """The probability of one class."""

    label: str | int
    """The name of the class, or its index if the names are not known."""
    index: int
    probability: float | None
    """None if the method is not calibrated."""


@dataclass(frozen=True)
class LayerPrediction:
    """The class that one layer predicts."""

    layer: int
    label: str | int
    """The name of the class, or its index if the names are not known."""
    index: int
    score: float
    probability: float | None = None
    """The calibrated probability of the class; None if the method is not calibrated."""


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
    """The file of the input; None if the input was an array."""
    row: int | None = None
    """The row of the input in its .npz file; None for image files and arrays."""
    probability: float | None = None
    """The calibrated probability of the class; None if the method is not calibrated."""
    top: tuple[ClassProbability, ...] = ()
    """The most likely classes, best first."""
    note: str = ""
    """Why the prediction may be wrong: the brightness of an image is unlike that of the training images."""


def predict(
    source: str | Path | Run | Method,
    inputs: Files | Arrays,
    *,
    device: str = "auto",
    batch_size: int = 64,
    top_k: int = 1,
    invert: bool = False,
    preprocessing: Preprocessing | None = None,
    classes: Sequence[str] | None = None,
    calibration: Calibration | None = None,
) -> list[Prediction]:
    """Predicts the class of images or rows of a table.

    Args:
        source: a run, the path of its folder, or a trained method.
        inputs: image files and folders of them, an .npz file with an array x, or the values of the inputs as
            they are stored in the data set, before preprocessing: images [N, C, H, W], [N, H, W, C] or, if
            they are gray, [N, H, W], or the rows of a table [N, D]. If the source is a method that was not
            trained by `fit`, and no preprocessing is given, tensors are passed to the network as they are.
        device: the device to compute on. With "auto", a run uses the fastest one, and a method stays on the
            device it is on.
        batch_size: the number of inputs in a batch.
        top_k: how many of the most likely classes to return.
        invert: swap dark and bright in images, for dark shapes on white if the training images are bright on
            dark.
        preprocessing: replaces that of the run or of the data that the method was trained on.
        classes: replaces the names of the classes.
        calibration: the scales that turn scores into probabilities, from `calibrate`. The default is that of
            the run; a method has none.

    Returns:
        One prediction per input, in order. A folder stands for all images in it, sorted by path.
    """
    if not isinstance(batch_size, int) or batch_size < 1:
        raise UserError(f"batch_size must be a whole number of at least 1, not {batch_size!r}.")
    brightness = None
    if isinstance(source, Method):
        method = source
        chosen = method.best_layer.device if device == "auto" else pick_device(device)
    else:
        run = open_run(source)
        method, chosen, brightness = load_method(run), pick_device(device), run.brightness
        calibration = calibration or _calibration(run, method, device)
    preprocessing, classes = preprocessing or method.preprocessing, classes or method.class_names
    if classes is not None and len(classes) != method.classes:
        raise UserError(f"The method predicts {method.classes} classes, but {len(classes)} names are given.")
    if not isinstance(top_k, int) or not 1 <= top_k <= method.classes:
        raise UserError(f"top_k must be 1 to {method.classes}, the number of classes, not {top_k!r}.")
    reader = InputReader(preprocessing, brightness, batch_size, invert)
    answers = Answers(method, range(method.classes) if classes is None else classes, calibration, top_k)
    method.to(chosen)
    predictions: list[Prediction] = []
    with evaluation_mode(method):
        for x, origins in reader.batches(inputs):
            predictions += answers.of(x.to(chosen), origins)
    return predictions


class Answers:
    """Turns scores into predictions.

    Args:
        method: the method.
        labels: the name or number of each class.
        calibration: turns scores into probabilities; None to leave them out.
        top_k: the number of most likely classes.
    """

    def __init__(
        self, method: Method, labels: Sequence[str | int], calibration: Calibration | None, top_k: int
    ) -> None:
        self.method = method
        self.labels = labels
        self.calibration = calibration
        self.top_k = top_k

    def of(self, x: Tensor, origins: Sequence[Origin]) -> list[Prediction]:
        """The predictions for network inputs [B, ...]."""
        scores = dict(self.method.layer_scores(x))
        layers = {layer: self._ranked(each, 1, layer) for layer, each in scores.items()}
        final = self._ranked(self.method.combine_scores(scores), self.top_k)
        predictions = []
        for i, origin in enumerate(origins):
            by_layer = tuple(
                LayerPrediction(layer, best.label, best.index, score, best.probability)
                for layer, ranked in layers.items()
                for best, score in ranked[i]
            )
            best, score = final[i][0]
            predictions.append(
                Prediction(
                    best.label,
                    best.index,
                    score,
                    by_layer,
                    origin.file,
                    origin.row,
                    best.probability,
                    tuple(each for each, _ in final[i]),
                    origin.note,
                )
            )
        return predictions

    def _ranked(
        self, scores: Tensor, count: int, layer: int | None = None
    ) -> list[list[tuple[ClassProbability, float]]]:
        """The best classes of each row of scores [B, C], with their scores."""
        best = scores.topk(count, dim=1)
        shares: list[list[float | None]] = [[None] * count] * len(scores)
        if self.calibration is not None:
            shares = self.calibration.probabilities(scores, layer).gather(1, best.indices).tolist()
        rows = zip(best.indices.tolist(), best.values.tolist(), shares, strict=True)
        return [
            [
                (ClassProbability(self.labels[index], index, share), score)
                for index, score, share in zip(*row, strict=True)
            ]
            for row in rows
        ]


def _calibration(run: Run, method: Method, device: str) -> Calibration | None:
    """The calibration of a run. None if it is not saved and cannot be fitted, because the data is gone."""
    try:
        return calibration_of(run, method, device=device)
    except (UserError, OSError):
        return None


def open_run(source: str | Path | Run) -> Run:
    """The run to predict with. A folder of runs with several seeds is refused."""
    if isinstance(source, Run):
        return source
    if RunGroup.exists(source):
        example = next(iter(RunGroup(source).runs().values()), None)
        hint = f", such as {example.folder}" if example else " after training it"
        raise UserError(f"{source} contains runs with several seeds; choose one of them{hint}.")
    return Run.open(source)
