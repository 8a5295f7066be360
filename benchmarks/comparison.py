"""Copies a finished comparison to results/ and the README: python benchmarks/comparison.py FOLDER [NAME]

FOLDER is the output folder of `hff compare`. Its CSV tables, Markdown page and figure are copied to results/
as NAME.csv and so on (comparison.csv without NAME). The command, versions and hardware of each row are added
to the CSV table. The README gets the Markdown table where it has a place of that name.
"""

import csv
import json
import shutil
import sys
from pathlib import Path

from collect import RESULTS
from pages import filled

from hff.comparison.compare import FIGURE, PAGE, TABLE, TRIALS
from hff.comparison.entrants import entry_of
from hff.comparison.settings import PROTOCOL

ROOT = RESULTS.parent
README = ROOT / "README.md"
MACHINE = ("command", "hff", "torch", "python", "processor", "threads")


def rows(folder: Path) -> list[dict[str, str]]:
    """The table of a comparison, with command, versions and hardware of each row."""
    saved = json.loads((folder / "settings.json").read_text())
    if saved.get("protocol") != PROTOCOL:
        sys.exit(f"{folder} does not follow protocol {PROTOCOL}; measure again, so that rows are not mixed.")
    seed = saved["settings"]["seed"]
    with (folder / TABLE).open(newline="") as file:
        found = list(csv.DictReader(file))
    for row in found:
        run = folder / entry_of(row["method"]).folder
        machine = json.loads((run / "environment.json").read_text())
        row |= {"seed": str(seed), **{key: str(machine[key]) for key in MACHINE}}
        row["date"] = machine["started"][:10]
    return found


def table(folder: Path) -> str:
    """The Markdown table of the page, without headline and remarks."""
    page = (folder / PAGE).read_text(encoding="utf-8")
    return "\n".join(line for line in page.splitlines() if line.startswith("|"))


def main() -> None:
    if len(sys.argv) not in (2, 3) or not (Path(sys.argv[1]) / TABLE).exists():
        sys.exit("Give the folder of a finished comparison, such as runs/compare-fashion_mnist-60s-seed0.")
    folder, name = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else "comparison"
    found = rows(folder)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    for file_name in (PAGE, FIGURE):
        shutil.copy(folder / file_name, RESULTS / Path(name).with_suffix(Path(file_name).suffix))
    if (folder / TRIALS).exists():
        shutil.copy(folder / TRIALS, RESULTS / f"{name}-trials.csv")
    text = README.read_text(encoding="utf-8")
    if f"<!-- {name} -->" in text:
        README.write_text(filled(text, name, table(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
