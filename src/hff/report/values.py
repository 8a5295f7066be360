"""The measured numbers of a run, as the CSV file of a report has them."""

from collections.abc import Iterator

from hff.errors import UserError
from hff.explain import reliability
from hff.report.document import Value
from hff.report.subject import Subject

QUANTITIES = (("accuracy", "%", 100.0), ("top5", "%", 100.0), ("bits", "bits", 1.0))


def values_of(subject: Subject) -> Iterator[Value]:
    """All measured numbers of a run: results on its split, calibration, learning curves, time and size."""
    name = subject.name
    try:
        yield from _results(subject)
        for layer in [*subject.answers.layers, None]:
            error = reliability(subject.answers, layer).error
            where = "" if layer is None else str(layer)
            yield Value(name, "calibration error", 100 * error, "%", where, split=subject.split)
    except UserError:
        pass  # The report says why there are no results.
    for record in subject.metrics:
        epoch = f"{record['epoch']:g}"
        for layer, share in record["validation_accuracy"].items():
            if share is not None:
                yield Value(name, "accuracy", 100 * share, "%", layer, epoch, "validation")
        if record.get("read_out_accuracy") is not None:
            yield Value(name, "accuracy", 100 * record["read_out_accuracy"], "%", "", epoch, "validation")
        for group, loss in record["loss"].items():
            yield Value(name, "loss", loss, "", group.removeprefix("block"), epoch, "train")
    for quantity, unit in (("parameters", ""), ("seconds", "s")):
        if quantity in subject.summary:
            yield Value(name, quantity, subject.summary[quantity], unit)


def _results(subject: Subject) -> Iterator[Value]:
    found, split = subject.evaluation, subject.split
    for quantity, unit, factor in QUANTITIES:
        if found.get(quantity) is not None:
            yield Value(subject.name, quantity, factor * found[quantity], unit, split=split)
    for layer in found["layers"]:
        for quantity, unit, factor in QUANTITIES:
            if layer.get(quantity) is not None:
                number = str(layer["layer"])
                yield Value(subject.name, quantity, factor * layer[quantity], unit, number, split=split)
