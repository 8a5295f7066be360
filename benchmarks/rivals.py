"""Combines the results of all methods at one equal budget: python benchmarks/rivals.py

Joins the results of `equal_budget.py`, `collect.py` and `cost.py` with the claims of the paper in
results/rivals.csv. Then updates docs/methods.md: the table of all methods, the measured line of each method,
and the gaps to backprop on CIFAR-10 from `cifar10_gap.py`.
"""

import csv
import re
from collections.abc import Iterator

from cifar10_gap import GROUNDS
from collect import READ_OUT, RESULTS
from equal_budget import DATA, subjects
from pages import filled

from hff.methods import methods
from hff.paper import claimed

PAGE = RESULTS.parent / "docs" / "methods.md"
TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
CONTROLS = {
    "hebb_linear": ", linear read-out",
    "random_convolutions": ", random convolutions",
    "random_filters": ", random weights",
}
"""Labels of variants and controls, which do not use a method's own rule."""
MISSING = "–"
Row = dict[str, str]


def table(name: str) -> list[Row]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def rows() -> Iterator[Row]:
    """One row for each measured subject and data set."""
    accuracy = {row["experiment"]: row for row in table("accuracy.csv")}
    cost = {row["experiment"]: row for row in table("cost.csv")}
    for subject in subjects():
        for data in DATA:
            measured = accuracy.get(f"{data}_{subject}_small")
            if measured is None:
                continue
            spent = cost.get(f"{DATA[0]}_{subject}_small", {})
            claim = claimed(measured["method"], data, measured["network"])
            yield {
                "data": data,
                "subject": subject,
                "method": measured["method"],
                "network": spent.get("network", measured["network"]),
                "test_accuracy": measured["test_accuracy"],
                "claimed": claim.printed if claim else "",
                "gain_of_last_epoch": last_gain(measured["experiment"]),
                "epochs": measured["epochs"],
                "learning_rate": measured["learning_rate"],
                "parameters": measured["parameters"],
                "prediction_parameters": measured["prediction_parameters"],
                "passes": spent.get("passes", ""),
                "seconds_per_epoch": spent.get("seconds_per_epoch", ""),
                "peak_memory_mb": spent.get("peak_memory_mb", ""),
                "seconds_per_10000_predictions": spent.get("seconds_per_10000_predictions", ""),
                "command": measured["command"],
            }


def last_gain(experiment: str) -> str:
    """Change of the read-out's validation accuracy in the last epoch."""
    shares = [
        float(row["validation_accuracy"])
        for row in table("curves.csv")
        if row["experiment"] == experiment and row["layer"] == READ_OUT
    ]
    return f"{shares[-1] - shares[-2]:+.2f}" if len(shares) > 1 else ""


def write_csv(found: list[Row]) -> None:
    with (RESULTS / "rivals.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def overview(found: list[Row]) -> str:
    """Table of all methods, sorted by MNIST accuracy within each kind of network."""
    by_subject: dict[str, dict[str, Row]] = {}
    for row in found:
        by_subject.setdefault(row["subject"], {})[row["data"]] = row
    lines = [
        "| method | blocks | MNIST | claimed | Fashion-MNIST | claimed "
        "| parameters | in training | passes | s / epoch | MB | s / 10,000 |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    complete = {subject: pair for subject, pair in by_subject.items() if set(pair) == set(DATA)}
    for pair in sorted(complete.values(), key=_rank):
        mnist, fashion = (pair[data] for data in DATA)
        cells = [
            f"`{mnist['method']}`",
            mnist["network"],
            *(row[key] or MISSING for row in (mnist, fashion) for key in ("test_accuracy", "claimed")),
            *parameters(mnist),
            *(
                mnist[key] or MISSING
                for key in (
                    "passes",
                    "seconds_per_epoch",
                    "peak_memory_mb",
                    "seconds_per_10000_predictions",
                )
            ),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parameters(row: Row) -> tuple[str, str]:
    """The parameters of a prediction and of training, for a table."""
    return f"{int(row['prediction_parameters']):,}", f"{int(row['parameters']):,}"


def _rank(pair: dict[str, Row]) -> tuple[bool, float]:
    mnist = pair[DATA[0]]
    return not mnist["network"].startswith("mlp"), -float(mnist["test_accuracy"])


def gaps() -> str:
    """Table of gaps to backprop on CIFAR-10, in the order of GROUNDS."""
    lines = [
        "| method | blocks | epochs | test | backprop | gap | cited | cited backprop | cited gap "
        "| parameters | in training |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    found = {(row["ground"], row["subject"]): row for row in table("cifar10_gap.csv")}
    for ground, planned in GROUNDS.items():
        for subject in planned.rivals:
            if row := found.get((ground, subject)):
                name = f"`{row['method']}`{CONTROLS.get(subject, '')}"
                keys = ("test_accuracy", "backprop", "gap", "cited", "cited_backprop", "cited_gap")
                accuracies = [row[key] or MISSING for key in keys]
                cells = [name, row["blocks"], row["epochs"], *accuracies, *parameters(row)]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def measured_line(method: str, found: list[Row]) -> str:
    """The measured results of one method as a line of text."""
    parts = []
    for row in found:
        if row["method"] == method:
            claim = f"claimed {row['claimed']}" if row["claimed"] else "no claim"
            gain = f", last epoch {row['gain_of_last_epoch']}" if row["gain_of_last_epoch"] else ""
            conditions = f"{row['network']}, {row['epochs']} epochs{gain}"
            parts.append(f"{TITLES[row['data']]} {row['test_accuracy']} ({claim}; {conditions})")
    return ", ".join(parts) + "."


def main() -> None:
    found = list(rows())
    write_csv(found)
    text = PAGE.read_text(encoding="utf-8")
    text = filled(text, "overview", overview(found))
    text = filled(text, "gaps", gaps())
    for method in methods:
        mark = f"<!-- measured:{method} -->"
        text = re.sub(rf"{mark}.*", f"{mark} {measured_line(method, found)}", text)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
