"""The pages keep their promises: commands run, Python runs, links lead somewhere, tables match the code."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from PIL import Image

from hff.cli import main
from hff.comparison import Comparison, ComparisonSettings, MethodResult
from hff.comparison.entrants import find_entrants
from hff.config import fields_of, shown
from hff.data import datasets
from hff.experiment import Experiment
from hff.methods import methods
from hff.methods.hff import HFF

ROOT = Path(__file__).parent.parent
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
PROMPT = re.compile(r"^(?:\$ )?(?=hff )")
TINY = ["--network.widths", "32,16,16", "--epochs", "3", "--quiet"]


class Command(NamedTuple):
    """A command of a page, and the first line that the page shows as its answer."""

    argv: list[str]
    answer: str


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language; those without a fence, indented by four, have the language ""."""
    text = page.read_text(encoding="utf-8")
    if not language:
        return re.findall(r"(?<=\n\n)(?:    .*\n)+", text)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands() -> Iterator[Command]:
    for page in (README, GUIDE):
        for language in ("", "console"):
            for block in blocks(page, language):
                lines = [line.strip() for line in block.splitlines()]
                for line, answer in zip(lines, [*lines[1:], ""], strict=True):
                    if PROMPT.match(line):
                        yield Command(shlex.split(PROMPT.sub("", line), comments=True)[1:], answer)


COMMANDS = list(commands())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the pages take for granted: runs, images, arrays, a recipe."""
    folder = tmp_path_factory.mktemp("world")
    trained = folder / "runs" / "digits-seed0"
    assert main(["train", *TINY, "--out", str(trained)]) == 0
    assert main(["eval", str(trained), "--json"]) == 0
    assert main(["train", *TINY, "--seeds", "0,1", "--out", str(folder / "runs" / "digits-seeds")]) == 0
    numbers = np.random.default_rng(0)
    images = ["photo.png", "scans/8-8.png", *(f"photos/{name}/{i}.png" for name in "ab" for i in range(9))]
    for file in images:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numbers.integers(256, size=(32, 32, 3), dtype=np.uint8)).save(folder / file)
    np.savez(folder / "wine.npz", x=numbers.normal(size=(40, 13)), y=np.arange(40) % 3)
    (folder / "mine.yaml").write_text(recipe())
    return folder


@pytest.fixture
def in_a_copy_of_the_world(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """Trainings get as far as the method on its network, and downloads as far as the name."""
    begun: list[Experiment] = []

    def begin(experiment: Experiment, out: Path, **_: object) -> dict[str, Any]:
        known = datasets[experiment.data.name]
        shape, classes = known.in_shape, known.classes
        if shape is None or classes is None:
            data = experiment.load_data()
            shape, classes = data.in_shape, len(data.classes)
        experiment.create_method(shape, classes)
        begun.append(experiment)
        return {}

    def get(name: str, *_: object) -> Path:
        return Path("data", name)

    class Planned(Comparison):
        """A comparison that finds its network for every method, and trains none."""

        def __init__(self, folder: Path, terms: ComparisonSettings, names: Any = None, **_: object) -> None:
            known = datasets[terms.data.name]
            assert known.in_shape
            assert known.classes
            names = names or sorted(methods)
            self.folder, self.terms = folder, terms
            self.entrants, self.unsupported = find_entrants(terms, names, known.in_shape, known.classes)
            assert set(self.entrants) | set(self.unsupported) == set(names)

        def run(self, listener: Any = None) -> list[MethodResult]:
            return []

    monkeypatch.setattr("hff.comparison.Comparison", Planned)
    monkeypatch.setattr("hff.experiment.train", begin)
    monkeypatch.setattr("hff.run_group.train", begin)
    monkeypatch.setattr("hff.data.get", get)
    return begun


def test_the_pages_hold_commands_of_every_verb() -> None:
    assert {command.argv[0] for command in COMMANDS} == {
        "train",
        "eval",
        "predict",
        "compare",
        "list",
        "data",
    }
    assert len(COMMANDS) > 20


@pytest.mark.usefixtures("in_a_copy_of_the_world")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.argv))
def test_every_command_runs(
    command: Command, untrained: list[Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = command.argv
    # Runs that were made earlier on a page; all are alike here.
    for place, named in enumerate(argv):
        if named.startswith("runs/") and argv[place - 1] != "--out" and not Path(named).exists():
            shutil.copytree("runs/digits-seed0", named)
    code = main(argv)
    said = capsys.readouterr().err
    if command.answer.startswith("hff: "):
        assert (code, said) == (2, f"{command.answer}\n")
        return
    assert code == 0, said
    assert bool(untrained) == (argv[0] == "train" and "--resume" not in argv)


def test_the_python_of_the_readme_runs_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(README, "python")
    exec(compile(block, str(README), "exec"), {})
    layers = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [layer for layer, *_ in layers] == ["0", "1", "2"]
    assert all(float(accuracy.rstrip("%")) > 90 for _, accuracy, *_ in layers)


@pytest.mark.usefixtures("in_a_copy_of_the_world")
def test_the_python_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(GUIDE, "python"):
        exec(compile(block, str(GUIDE), "exec"), {})
    assert re.fullmatch(r"\d says layer [012]\n", capsys.readouterr().out)


def recipe() -> str:
    (block,) = blocks(GUIDE, "yaml")
    return block


def test_the_recipe_of_the_guide_is_complete_and_known() -> None:
    experiment = Experiment.from_mapping(yaml.safe_load(recipe()))
    assert experiment.method.options["prototypes_per_class"] == 2
    assert experiment.training.lr_schedule == "cosine"


def test_the_guide_lists_the_options_of_hff_with_their_defaults() -> None:
    rows = re.findall(r"^\|[^|]*\| `(\w+)` \| `([^`]+)` \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    assert dict(rows) == {field.name: shown(field.default) for field in fields_of(HFF)}


def test_the_guide_lists_the_files_of_a_run(world: Path) -> None:
    section = GUIDE.read_text(encoding="utf-8").partition("## What a run folder holds")[2]
    listed = re.findall(r"^\| `([^`]+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (world / "runs" / "digits-seed0").iterdir())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        goal = page.parent / path if path else page
        assert goal.exists(), f"{page.name} links to {target}, which does not exist."
        if anchor:
            assert anchor in anchors(goal), f"{page.name} links to {target}, which has no such heading."


def anchors(page: Path) -> set[str]:
    """The headings as the addresses within a page have them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
