"""The pictures of runs, each with a text for those who cannot see it, for reports and `hff plot`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hff.errors import UserError
from hff.explain.answers import KINDS, Kind
from hff.explain.feature_space import TITLES as PROJECTIONS
from hff.explain.figures import draw_maps
from hff.explain.maps import TITLES as MAPS
from hff.explain.maps import picked, shown_images
from hff.report import figures
from hff.report.document import Picture
from hff.report.subject import Subject
from hff.training.curves import accuracy_curves, curves_figure


@dataclass(frozen=True)
class Choices:
    """What can be chosen about a picture."""

    kind: Kind = "wrong"
    """The kind of the images of activation maps."""
    count: int = 4
    """The number of images."""
    projection: str = "auto"
    """The projection of the feature space: umap, tsne, pca, or auto."""
    epochs: tuple[int, ...] | None = None
    """The epochs of kept checkpoints to show the feature space at; None for all."""


def curves(subjects: Sequence[Subject], choices: Choices) -> Picture:
    """Learning curves of every layer."""
    figure = curves_figure([(each.name, each.run) for each in subjects], titled=len(subjects) > 1)
    ends = []
    for each in subjects:
        found = accuracy_curves(each.metrics)
        last = ", ".join(f"{name} {100 * points[-1][1]:.2f} %" for name, points in found.items())
        ends.append(f"{each.name}: {last}" if last else f"{each.name}: no validation split")
    return Picture(
        "curves",
        figure,
        f"Line charts over the epochs. Validation accuracy at the end: {'; '.join(ends)}.",
        "Validation accuracy and training loss of every layer over the epochs.",
    )


def layers(subjects: Sequence[Subject], choices: Choices) -> Picture:
    """Accuracy layer by layer."""
    split = _split(subjects)
    found = [(each.name, _accuracies(each), each.evaluation["accuracy"]) for each in subjects]
    texts = [
        f"{name}: " + ", ".join(f"layer {layer} {100 * share:.2f} %" for layer, share in shares.items())
        for name, shares, _ in found
    ]
    return Picture(
        "layers",
        figures.accuracy_by_layer(found, split),
        f"Line chart of the {split} accuracy of each layer. {'; '.join(texts)}.",
        f"Accuracy on the {split} split if each layer predicted alone.",
    )


def confusion(subjects: Sequence[Subject], choices: Choices) -> Picture:
    """Confusion matrices of the final prediction."""
    classes = subjects[0].classes
    shown = [each for each in subjects if each.classes == classes]
    matrices = [(each.name, each.evaluation["confusion"]) for each in shown]
    texts = []
    for name, counts in matrices:
        pairs = worst_pairs(counts, classes, 3)
        listed = ", ".join(f"{true} taken for {other} {n} times" for true, other, n in pairs) or "no errors"
        texts.append(f"{name}: {listed}")
    return Picture(
        "confusion",
        figures.confusion(matrices, classes),
        f"Confusion matrix with true classes as rows and predicted classes as columns. {'; '.join(texts)}.",
        "Confusions of the final prediction: numbers are examples, colors are shares of the true class.",
    )


def calibration(subjects: Sequence[Subject], choices: Choices) -> Picture:
    """Calibration of every layer."""
    return Picture(
        "calibration",
        figures.calibration([(each.name, each.answers) for each in subjects]),
        "Line charts of the share of correct predictions against their mean probability in ten bins, for "
        "every layer. On the diagonal, probabilities are right. The table has the errors.",
        "How often a layer is right when it says that it is. Below the diagonal, it is too sure.",
    )


def maps(subjects: Sequence[Subject], choices: Choices) -> Picture:
    """Activation maps of images of a kind."""
    subject = _only(subjects, "Activation maps")
    found = subject.maps(choices.kind, choices.count)
    assert found.labels is not None
    texts = []
    for i in range(len(found)):
        opinions = ", ".join(
            f"layer {each.layer} predicts {found.names[int(each.predicted[i])]}" for each in found.layers
        )
        texts.append(f"an image of class {found.names[int(found.labels[i])]}: {opinions}")
    return Picture(
        f"maps-{choices.kind}",
        draw_maps(found),
        f"Images that are {KINDS[choices.kind]}, each with a heat map for every layer. {'; '.join(texts)}.",
        f"{subject.name}, {KINDS[choices.kind]}: {MAPS[found.how]}, for the class that each layer predicts.",
    )


def space(subjects: Sequence[Subject], choices: Choices) -> Picture:
    """The feature space of every layer in two dimensions."""
    subject = _only(subjects, "The feature space")
    found = subject.embedding(choices.projection, choices.epochs)
    stars = found.layers[0].prototypes is not None
    title = PROJECTIONS[found.projection]
    return Picture(
        "embedding",
        found.figure(),
        f"Scatter plots, one for each layer: a {title} projection of the features of {len(found.labels)} "
        f"examples, colored by class{', with stars for the prototypes' if stars else ''}.",
        f"{subject.name}: {title} of the directions of the features{' and the prototypes' if stars else ''}.",
    )


def hardest(subjects: Sequence[Subject], choices: Choices) -> Picture:
    """The images whose true class has the lowest probability."""
    subject = _only(subjects, "The hardest images")
    if len(subject.data.in_shape) != 3:
        raise UserError("This data has no images, but rows of a table.")
    numbers = subject.answers.choose("hardest", choices.count)
    chosen = picked(subject.data, subject.split, numbers, "hardest")
    names, final = subject.classes, subject.answers.final
    notes = [
        (names[int(label)], names[int(final.predicted[n])], f"{100 * float(final.confidence[n]):.0f} %")
        for label, n in zip(chosen.labels, chosen.numbers, strict=True)
    ]
    images = shown_images(subject.data.preprocessing(chosen.inputs), subject.data.preprocessing)
    texts = [f"a {truth} taken for {predicted} with {share}" for truth, predicted, share in notes]
    return Picture(
        "hardest",
        figures.image_grid(images, notes),
        f"The images with the lowest probability of their true class: {'; '.join(texts)}.",
        f"{subject.name}: the hardest {subject.split} images. Above: the true class; below: the prediction.",
    )


def worst_pairs(
    counts: Sequence[Sequence[int]], classes: Sequence[str], number: int
) -> list[tuple[str, str, int]]:
    """The most frequent errors as (true class, predicted class, examples)."""
    errors = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if i != j and n > 0]
    errors.sort(key=lambda each: (-each[0], each[1], each[2]))
    return [(classes[i], classes[j], n) for n, i, j in errors[:number]]


def _accuracies(subject: Subject) -> dict[int, float]:
    return {each["layer"]: each["accuracy"] for each in subject.evaluation["layers"]}


def _split(subjects: Sequence[Subject]) -> str:
    return subjects[0].split


def _only(subjects: Sequence[Subject], what: str) -> Subject:
    if len(subjects) != 1:
        raise UserError(f"{what} are drawn for one run at a time; give one run.")
    return subjects[0]


Draw = Callable[[Sequence[Subject], Choices], Picture]
DRAWINGS: dict[str, Draw] = {
    "curves": curves,
    "layers": layers,
    "confusion": confusion,
    "maps": maps,
    "embedding": space,
    "hardest": hardest,
    "calibration": calibration,
}
"""Everything that `hff plot` draws, by name."""
