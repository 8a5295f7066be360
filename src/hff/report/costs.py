"""Time and memory of runs: what was measured while they were trained."""

from collections.abc import Sequence

from hff.report.document import Paragraph, Part, Table
from hff.report.subject import Subject

MISSING = "not measured"


def cost_table(subjects: Sequence[Subject]) -> list[Part]:
    """A table with a column for each run."""
    found = [_costs(subject) for subject in subjects]
    names = list(dict.fromkeys(name for costs in found for name in costs))
    rows = tuple((name, *(costs.get(name, MISSING) for costs in found)) for name in names)
    table = Table("Time, memory and hardware.", ("", *(subject.name for subject in subjects)), rows)
    hint = "hff bench measures time and memory beside backprop; times of different machines do not compare."
    return [table, Paragraph(hint)]


def _costs(subject: Subject) -> dict[str, str]:
    position, cost, machine = subject.run.position(), subject.run.cost(), subject.environment
    costs: dict[str, str] = {}
    if "seconds" in subject.summary:
        costs["training with validation"] = f"{subject.summary['seconds']:.1f} s"
    if position.spent:
        costs["training steps only"] = f"{position.spent:.1f} s"
        costs["training examples per second"] = f"{position.samples / position.spent:,.0f}"
    if "epochs" in subject.summary and position.spent:
        costs["training steps per epoch"] = f"{position.spent / max(subject.summary['epochs'], 1e-9):.2f} s"
    predicted, memory = cost.get("prediction_seconds"), cost.get("peak_memory")
    costs["time of 10,000 predictions"] = MISSING if predicted is None else f"{10_000 * predicted:.2f} s"
    costs["memory added by training"] = MISSING if memory is None else f"{memory / 1e6:.0f} MB"
    costs["parameters"] = f"{sum(p.numel() for p in subject.method.parameters()):,}"
    costs["parameters of a prediction"] = f"{subject.method.prediction_parameters:,}"
    costs["forward passes of a prediction"] = str(subject.method.passes)
    for name in ("processor", "threads", "accelerator", "torch", "hff", "started"):
        if machine.get(name) is not None:
            costs[name] = str(machine[name])
    return costs
