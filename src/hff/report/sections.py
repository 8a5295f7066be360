"""The sections of a report about runs, side by side. What cannot be shown is replaced by the reason."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hff.errors import UserError
from hff.explain import reliability
from hff.formatting import in_words, percent
from hff.report import drawings
from hff.report.costs import cost_table
from hff.report.document import Lines, Paragraph, Part, Picture, Section, Table
from hff.report.drawings import Choices, Draw, worst_pairs
from hff.report.subject import Subject
from hff.run_group import spread

KINDS = ("right", "late", "wrong")
MISSING = "–"
PAIRS = 5
"""The number of confusions that are listed for one run; for each of several runs, fewer are."""


def sections_of(subjects: Sequence[Subject], images: int, projection: str) -> list[Section]:
    """All sections about runs.

    Args:
        subjects: the runs.
        images: the number of images of each kind.
        projection: the projection of the feature space.
    """
    space = Choices(projection=projection)
    sections = [
        _trained(subjects),
        _accuracy(subjects),
        Section("curves", "Learning curves", tuple(_drawn(drawings.curves, subjects))),
        _claims(subjects),
        _confusions(subjects),
        _maps(subjects, images),
        Section("space", "Feature space", tuple(_each(drawings.space, subjects, space))),
        Section("hardest", "Hardest images", tuple(_each(drawings.hardest, subjects, Choices(count=8)))),
        _calibration(subjects),
        Section("cost", "Time and memory", tuple(cost_table(subjects))),
    ]
    return [section for section in sections if section.parts]


def three_lines(subject: Subject) -> tuple[str, str, str]:
    """What was trained, on what, and how, in three lines."""
    experiment, summary = subject.experiment, subject.summary
    method = subject.method
    depth = len(method.blocks)
    learned = sum(p.numel() for p in method.parameters())
    used = method.prediction_parameters
    first = (
        f"{method.info.title} ({experiment.method.name}) on network {experiment.network.name}: {depth} "
        f"layer{'s' * (depth > 1)}, {learned:,} parameters"
        + (f", {used:,} of them for a prediction." if used < learned else ".")
    )
    sizes = [
        f"{summary[key]:,} {name}"
        for key, name in (("training_samples", "training"), ("validation_samples", "validation"))
        if key in summary
    ]
    shape = "x".join(map(str, subject.run.preprocessing.size))
    examples = f" {' and '.join(sizes)} examples" if sizes else " examples"
    second = f"Data set {experiment.data.name}:{examples} of {shape}, {len(subject.classes)} classes."
    training, machine = experiment.training, subject.environment
    epochs = summary.get("epochs")
    state = f"{epochs:g} epochs" if epochs is not None else "not finished, stopped"
    seconds = f" in {in_words(summary['seconds'])}" if "seconds" in summary else ""
    where = ""
    if "processor" in machine:
        count = machine["threads"]
        where = f" on {machine['processor']}, {count} thread{'s' * (count != 1)}"
    third = (
        f"Trained for {state}{seconds}{where}: {training.optimizer}, learning rate "
        f"{training.learning_rate:g} ({training.lr_schedule}), batches of {training.batch_size}, seed "
        f"{experiment.seed}."
    )
    return first, second, third


def _trained(subjects: Sequence[Subject]) -> Section:
    parts: list[Part] = []
    for subject in subjects:
        if len(subjects) > 1:
            parts.append(Paragraph(f"{subject.name}:"))
        parts.append(Lines(three_lines(subject)))
    return Section("trained", "What was trained", tuple(parts))


def _accuracy(subjects: Sequence[Subject]) -> Section:
    shown, parts = _with(subjects, lambda subject: subject.evaluation)
    if not shown:
        return Section("accuracy", "Accuracy layer by layer", tuple(parts))
    split = shown[0].split
    layers = sorted({each["layer"] for subject in shown for each in subject.evaluation["layers"]})
    if len(shown) > 1:
        return _accuracy_of_several(shown, layers, parts)
    by_run = [{each["layer"]: each for each in subject.evaluation["layers"]} for subject in shown]
    rows = []
    for layer in layers:
        cells = [_layer_cells(found.get(layer)) for found in by_run]
        rows.append((f"layer {layer}", *(cell for group in cells for cell in group)))
    finals = [_layer_cells({**subject.evaluation, "bits": None}) for subject in shown]
    rows.append(("prediction", *(cell for group in finals for cell in group)))
    header = ("", "accuracy", "top-5", "bits")
    counts = ", ".join(f"{subject.evaluation['samples']:,}" for subject in shown[:1])
    table = Table(f"Results on {counts} {split} examples.", header, tuple(rows))
    bits = Paragraph("Bits are a lower bound on the information about the class in the scores of a layer.")
    return Section(
        "accuracy", "Accuracy layer by layer", (drawings.layers(shown, Choices()), table, bits, *parts)
    )


def _accuracy_of_several(shown: Sequence[Subject], layers: Sequence[int], parts: Sequence[Part]) -> Section:
    """A row for each run, and the mean and spread over the seeds of a group."""
    shares = {subject.name: _shares(subject) for subject in shown}
    columns = [*layers, None]
    rows = [(name, *(_percent(found.get(layer)) for layer in columns)) for name, found in shares.items()]
    for group in dict.fromkeys(subject.group for subject in shown if subject.group):
        own = [shares[subject.name] for subject in shown if subject.group == group]
        means = (_mean([found.get(layer) for found in own]) for layer in columns)
        rows.append((f"{group}, mean ± std", *means))
    header = ("run", *(f"layer {layer}" for layer in layers), "prediction")
    table = Table(f"Accuracy on the {shown[0].split} split.", header, tuple(rows))
    picture = drawings.layers(shown, Choices())
    return Section("accuracy", "Accuracy layer by layer", (picture, table, *parts))


def _shares(subject: Subject) -> dict[int | None, float]:
    layers = {each["layer"]: each["accuracy"] for each in subject.evaluation["layers"]}
    return {**layers, None: subject.evaluation["accuracy"]}


def _mean(shares: Sequence[float | None]) -> str:
    known = [share for share in shares if share is not None]
    return percent(spread(known)) if known else MISSING


def _layer_cells(found: dict[str, object] | None) -> tuple[str, str, str]:
    if found is None:
        return MISSING, MISSING, MISSING
    accuracy, top5, bits = (found.get(name) for name in ("accuracy", "top5", "bits"))
    return _percent(accuracy), _percent(top5), MISSING if bits is None else f"{bits:.2f}"


def _percent(share: object) -> str:
    return MISSING if not isinstance(share, int | float) else f"{100 * share:.2f} %"


def _claims(subjects: Sequence[Subject]) -> Section:
    rows, notes = [], []
    for subject in subjects:
        claim = subject.claim
        if claim is not None:
            measured = _measured(subject)
            gap = MISSING if measured is None else f"{100 * measured - claim.value:+.2f}"
            rows.append((f"{subject.name}, prediction", f"{claim.printed} %", _percent(measured), gap))
            notes += [f"{subject.name}: {claim.note}"] if claim.note else []
        for claim in subject.layer_claims:
            layer = int(claim.column[1:])
            share = _measured(subject, layer)
            gap = MISSING if share is None else f"{100 * share - claim.value:+.2f}"
            rows.append((f"{subject.name}, layer {layer}", f"{claim.printed} %", _percent(share), gap))
    if not rows:
        return Section("claims", "Claimed and measured", ())
    split = subjects[0].split
    header = ("", "claimed by the paper", f"measured ({split})", "difference in points")
    parts: list[Part] = [
        Paragraph(
            "The paper's own numbers are means of runs of 150 to 300 epochs, and many of its rivals' are "
            "cited from other papers. The first section says how these runs were trained."
        ),
        Table("Accuracy claimed by the paper, and measured here.", header, tuple(rows)),
        *([Lines(tuple(notes))] if notes else []),
    ]
    return Section("claims", "Claimed and measured", tuple(parts))


def _measured(subject: Subject, layer: int | None = None) -> float | None:
    try:
        found = subject.evaluation
    except UserError:
        return None
    if layer is None:
        return float(found["accuracy"])
    return next((float(each["accuracy"]) for each in found["layers"] if each["layer"] == layer), None)


def _confusions(subjects: Sequence[Subject]) -> Section:
    shown, parts = _with(subjects, lambda subject: subject.evaluation)
    for classes in dict.fromkeys(subject.classes for subject in shown):
        same = [subject for subject in shown if subject.classes == classes]
        picture = drawings.confusion(same, Choices())
        name = "confusion" if same == shown else f"confusion-{same[0].name}"
        parts.append(replace(picture, name=_anchor(name)))
        rows = [
            (subject.name, true, predicted, str(count))
            for subject in same
            for true, predicted, count in worst_pairs(
                subject.evaluation["confusion"], classes, PAIRS if len(shown) == 1 else 3
            )
        ]
        if rows:
            header = ("run", "true class", "predicted class", "examples")
            parts.append(Table("The most frequent confusions.", header, tuple(rows)))
    return Section("confusion", "Confusions", tuple(parts))


def _maps(subjects: Sequence[Subject], images: int) -> Section:
    parts: list[Part] = []
    notes: list[Part] = []
    for subject in _pictured(subjects):
        for kind in KINDS:
            choices = Choices(kind=kind, count=images)  # type: ignore[arg-type]
            # The other kinds may be refused for the same reason, which is given once.
            found = _drawn(drawings.maps, [subject], choices)
            notes += [part for part in found if isinstance(part, Paragraph) and part not in notes]
            parts += [part for part in found if isinstance(part, Picture)]
    if any(isinstance(part, Picture) for part in parts):
        text = (
            "Which parts of an image speak for the class that a layer predicts, with the probability of that "
            "class. A check mark says that the layer is right. Exact contributions add up to the score."
        )
        parts.insert(0, Paragraph(text))
    return Section("maps", "Activation maps", (*parts, *notes))


def _calibration(subjects: Sequence[Subject]) -> Section:
    shown, parts = _with(subjects, lambda subject: subject.answers)
    if not shown:
        return Section("calibration", "Calibration", tuple(parts))
    layers = sorted({layer for subject in shown for layer in subject.answers.layers})
    rows = [
        (
            f"layer {layer}",
            *(_error(subject, layer) for subject in shown),
        )
        for layer in layers
    ]
    rows.append(("prediction", *(_percent(reliability(subject.answers).error) for subject in shown)))
    header = ("", *(subject.name for subject in shown))
    table = Table("Expected calibration error.", header, tuple(rows))
    text = (
        f"The expected calibration error on the {shown[0].split} split is the mean distance between the "
        "probability of a prediction and the share of correct ones, in ten bins."
    )
    return Section(
        "calibration", "Calibration", (drawings.calibration(shown, Choices()), Paragraph(text), table, *parts)
    )


def _error(subject: Subject, layer: int) -> str:
    answers = subject.answers
    return _percent(reliability(answers, layer).error) if layer in answers.layers else MISSING


def _with(
    subjects: Sequence[Subject], needed: Callable[[Subject], object]
) -> tuple[list[Subject], list[Part]]:
    """The runs for which something can be computed, and the reasons of the others."""
    shown: list[Subject] = []
    reasons: list[Part] = []
    for subject in subjects:
        try:
            needed(subject)
        except UserError as error:
            reasons.append(Paragraph(f"{subject.name} is not shown: {error}"))
        else:
            shown.append(subject)
    return shown, reasons


def _each(draw: Draw, subjects: Sequence[Subject], choices: Choices) -> list[Part]:
    """A picture of each run; of several seeds, the first one."""
    return [part for subject in _pictured(subjects) for part in _drawn(draw, [subject], choices)]


def _pictured(subjects: Sequence[Subject]) -> list[Subject]:
    """The runs without the further seeds of a group."""
    groups: set[str] = set()
    shown = []
    for subject in subjects:
        if subject.group not in groups:
            shown.append(subject)
        groups |= {subject.group} if subject.group else set()
    return shown


def _drawn(draw: Draw, subjects: Sequence[Subject], choices: Choices | None = None) -> list[Part]:
    """A picture, or the reason why there is none."""
    try:
        picture = draw(subjects, choices or Choices())
    except UserError as error:
        return [Paragraph(f"{', '.join(subject.name for subject in subjects)}: {error}")]
    own = f"{picture.name}-{subjects[0].name}" if len(subjects) == 1 else picture.name
    return [replace(picture, name=_anchor(own))]


def _anchor(name: str) -> str:
    """A name that can stand in the address of a page and in the name of a file."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)
