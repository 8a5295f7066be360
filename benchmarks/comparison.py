"""Copies a finished comparison to results/ and the README: python benchmarks/comparison.py FOLDER

FOLDER is the output folder of `hff compare`. Its CSV table, Markdown page and figure are copied to results/.
The command, versions and hardware of each row are added to the CSV table. The README gets the Markdown
table.
"""

import csv
import json
import shutil
import sys
from pathlib import Path

from collect import RESULTS
from pages import filled

from hff.comparison.compare import FIGURE, PAGE, TABLE

ROOT = RESULTS.parent
README = ROOT / "README.md"
MACHINE = ("command", "hff", "torch", "python", "processor", "threads")


def rows(folder: Path) -> list[dict[str, str]]:
    """The table of a comparison, with command, versions and hardware of each row."""
    seed = json.loads((folder / "settings.json").read_text())["settings"]["seed"]
    with (folder / TABLE).open(newline="") as file:
        found = list(csv.DictReader(file))
    for row in found:
        machine = json.loads((folder / row["method"] / "environment.json").read_text())
        row |= {"seed": str(seed), **{key: str(machine[key]) for key in MACHINE}}
        row["date"] = machine["started"][:10]
    return found


def table(folder: Path) -> str:
    """The Markdown table of the page, without headline and remarks."""
    page = (folder / PAGE).read_text(encoding="utf-8")
    return "\n".join(line for line in page.splitlines() if line.startswith("|"))


def main() -> None:
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / TABLE).exists():
        sys.exit("Give the folder of a finished comparison, such as runs/compare-fashion_mnist-60s-seed0.")
    folder = Path(sys.argv[1])
    found = rows(folder)
    with (RESULTS / TABLE).open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    for name in (PAGE, FIGURE):
        shutil.copy(folder / name, RESULTS / name)
    text = README.read_text(encoding="utf-8")
    README.write_text(filled(text, "comparison", table(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
