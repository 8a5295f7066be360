"""README and guide are correct: commands and Python blocks run, links exist, and tables match the code."""

import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import yaml

from hff.bench import BenchResult
from hff.cli import main
from hff.cli.bench import ALLOWED
from hff.cli.command import VERBS
from hff.comparison import Comparison, ComparisonSettings, MethodResult
from hff.comparison.entrants import entries_of, find_entrants
from hff.config import fields_of, shown
from hff.data import Preprocessing, datasets
from hff.data.samples import SAMPLES, write_samples
from hff.experiment import Experiment
from hff.methods import methods
from hff.methods.hff import HFF
from hff.networks import networks
from hff.training import Trainer

ROOT = Path(__file__).parent.parent
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
PROMPTS = {"": re.compile(r"^(?=hff )"), "console": re.compile(r"^\$ (?=hff )")}
"""What a command starts with, in a block without fence and in a console, where other lines are output."""
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
"""A Python block, and the block of text below it that shows what it prints."""
TINY = ["--network.widths", "64,32,32", "--epochs", "3", "--quiet"]


class Command(NamedTuple):
    """A command of a page, and the first line of the output that the page shows (empty if it shows none)."""

    argv: tuple[str, ...]
    output: str


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def sections(page: Path) -> dict[str, str]:
    """The text below each heading of the second level."""
    parts = re.split(r"^## (.+)\n", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks in a language; "" stands for blocks without fence, which are indented by four."""
    if not language:
        return re.findall(r"(?<=\n\n)(?:    .*\n)+", text_of(page))
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)


def commands() -> Iterator[Command]:
    for page in (README, GUIDE):
        for language, prompt in PROMPTS.items():
            for block in blocks(page, language):
                lines = [line.strip() for line in block.splitlines()]
                for line, following in zip(lines, [*lines[1:], ""], strict=True):
                    if prompt.match(line):
                        argv = tuple(shlex.split(prompt.sub("", line), comments=True)[1:])
                        shows_output = following != "..." and not re.match(r"(\$|hff) ", following)
                        yield Command(argv, following if shows_output else "")


COMMANDS = [Command(argv, output) for argv, output in dict(sorted(set(commands()))).items()]
"""Each command once. The version with output comes last in the sorted list, so it is the one that is kept."""
EXAMPLES = [title for title, section in sections(GUIDE).items() if PYTHON.search(section)]


def masked(text: str) -> str:
    """Text with numbers and spacing replaced, because they depend on the run."""
    return re.sub(r"\s+", " ", re.sub(r"-?\d+(\.\d+)?", "#", text)).strip()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the pages refer to: runs, images, arrays and a recipe."""
    folder = tmp_path_factory.mktemp("world")
    trained = folder / "runs" / "digits-seed0"
    assert main(["train", *TINY, "--out", str(trained)]) == 0
    assert main(["eval", str(trained), "--json"]) == 0
    assert main(["eval", str(trained), "--early-exit", "--epsilon", "0.2", "--json"]) == 0
    assert main(["train", *TINY, "--seeds", "0,1", "--out", str(folder / "runs" / "digits-seeds")]) == 0
    for name in SAMPLES:
        write_samples(name, folder)
    (folder / "mine.yaml").write_text(recipe())
    return folder


@pytest.fixture
def in_a_copy_of_the_world(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """Trainings create their method and trainer but take no step, and nothing is downloaded."""
    begun: list[Experiment] = []

    def begin(experiment: Experiment, out: Path, **_: object) -> dict[str, Any]:
        known = datasets[experiment.data.name]
        shape, classes = known.in_shape, known.classes
        if shape is None or classes is None:
            data = experiment.load_data()
            shape, classes = data.in_shape, len(data.classes)
        Trainer(experiment.create_method(shape, classes), experiment.training)
        begun.append(experiment)
        return {}

    def get(name: str, *_: object) -> Path:
        return Path("data", name)

    class Planned(Comparison):
        """A comparison that finds a network for every method, but does not train."""

        def __init__(
            self, folder: Path, settings: ComparisonSettings, names: Any = None, **_: object
        ) -> None:
            known = datasets[settings.data.name]
            assert known.in_shape
            assert known.classes
            entries = entries_of(names)
            inputs = Preprocessing((0.5,), (0.25,), 255.0, known.in_shape)
            data: Any = SimpleNamespace(
                in_shape=known.in_shape, classes=range(known.classes), preprocessing=inputs
            )
            self.folder, self.settings = folder, settings
            self.entrants, self.unsupported = find_entrants(settings, entries.values(), data)
            assert self.entrants
            assert set(self.entrants) | set(self.unsupported) == set(entries)
            assert settings.network or not self.unsupported

        def run(self, listener: Any = None) -> list[MethodResult]:
            return []

    def measured(given: Any, options: Any) -> BenchResult:
        assert set(options) - {"report"} <= set(ALLOWED[given.kind])
        return BenchResult(given.kind, ())

    # t-SNE takes many seconds; it has its own test.
    monkeypatch.setattr("hff.explain.feature_space._available", lambda projection: "pca")
    monkeypatch.setattr("hff.cli.bench._run", measured)
    monkeypatch.setattr("hff.comparison.Comparison", Planned)
    monkeypatch.setattr("hff.experiment.train", begin)
    monkeypatch.setattr("hff.run_group.train", begin)
    monkeypatch.setattr("hff.data.get", get)
    return begun


def test_the_pages_contain_commands_of_every_verb() -> None:
    verbs = {command.argv[0] for command in COMMANDS}
    assert verbs == set(VERBS)
    assert len(COMMANDS) > 30


@pytest.mark.usefixtures("in_a_copy_of_the_world")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.argv))
def test_every_command_runs_and_starts_with_the_output_shown(
    command: Command, untrained: list[Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = list(command.argv)
    if argv[:2] == ["data", "samples"]:
        # The command writes what is here already, for the commands after it.
        shutil.rmtree(path) if (path := Path([*argv, "scans"][2])).is_dir() else path.unlink()
    # A page may refer to a run of an earlier command. Here, all runs are copies of the same one.
    for place, named in enumerate(argv):
        if named.startswith("runs/") and argv[place - 1] != "--out" and not Path(named).exists():
            shutil.copytree("runs/digits-seed0", named)
    code = main(argv)
    printed = capsys.readouterr()
    if command.output.startswith("hff: "):
        assert (code, printed.err) == (2, f"{command.output}\n")
        return
    assert code == 0, printed.err
    assert bool(untrained) == (argv[0] == "train" and "--resume" not in argv)
    # Trainings and comparisons do not run here, so their output cannot be checked.
    if command.output and argv[0] not in ("train", "compare"):
        assert masked(printed.out.splitlines()[0]) == masked(command.output)


@pytest.mark.usefixtures("in_a_copy_of_the_world")
def test_the_python_of_the_readme_runs_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    # Later blocks continue the first one.
    first, *others = blocks(README, "python")
    names: dict[str, Any] = {}
    exec(compile(first, README.name, "exec"), names)
    layers = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [layer for layer, *_ in layers] == ["0", "1", "2"]
    assert all(float(accuracy.rstrip("%")) > 90 for _, accuracy, *_ in layers)
    for block in others:
        exec(compile(block, README.name, "exec"), names)


@pytest.mark.usefixtures("in_a_copy_of_the_world")
@pytest.mark.parametrize("title", EXAMPLES)
def test_the_python_of_a_section_prints_what_the_guide_shows(
    title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for block, output in PYTHON.findall(sections(GUIDE)[title]):
        exec(compile(block, f"{GUIDE.name}, {title}", "exec"), names)
        assert masked(capsys.readouterr().out) == masked(output)


def test_the_pages_write_all_samples_that_they_use() -> None:
    """Every path of a command is written by an earlier command, or it is the recipe that the guide shows."""
    written = {"runs", "mine.yaml", "answers.csv"}
    for page in (README, GUIDE):
        for argv in re.findall(r"^(?:\$|   ) hff (.+)$", text_of(page), re.MULTILINE):
            words = shlex.split(argv, comments=True)
            if words[:2] == ["data", "samples"]:
                written.add([*words, "scans"][2])
            used = {word.partition("/")[0] for word in words[1:] if word.partition("/")[0] in SAMPLES}
            assert used <= written, f"{page.name}: {argv}"


def test_all_python_of_the_guide_is_in_a_section() -> None:
    assert len(EXAMPLES) >= 4
    found = sum(len(PYTHON.findall(section)) for section in sections(GUIDE).values())
    assert found == text_of(GUIDE).count("```python")


def recipe() -> str:
    (block,) = blocks(GUIDE, "yaml")
    return block


def test_the_recipe_of_the_guide_is_valid() -> None:
    experiment = Experiment.from_mapping(yaml.safe_load(recipe()))
    assert experiment.method.options["prototypes_per_class"] == 2
    assert experiment.training.lr_schedule == "cosine"


def test_the_guide_lists_the_options_of_hff_with_their_defaults() -> None:
    rows = re.findall(r"^\|[^|]*\| `(\w+)` \| `([^`]+)` \|", text_of(GUIDE), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    assert dict(rows) == {field.name: shown(field.default) for field in fields_of(HFF)}


def test_the_guide_lists_the_files_of_a_run(world: Path) -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", sections(GUIDE)["What a run folder holds"], re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (world / "runs" / "digits-seed0").iterdir())


def test_the_guide_counts_the_methods() -> None:
    (counts,) = re.findall(r"There are (\d+) methods: `hff`, `backprop` and (\d+) others", text_of(GUIDE))
    assert tuple(map(int, counts)) == (len(methods), len(methods) - 2)


def test_the_guide_names_the_methods_that_train_residual_networks() -> None:
    prose = FENCED.sub("", sections(GUIDE)["Residual networks"])
    named = {word for word in re.findall(r"`(\w+)`", prose) if word in methods}
    assert named == {name for name, method in methods.items() if method.info.supports == "any"}


def test_the_entry_points_of_the_guide_belong_to_the_registries() -> None:
    (block,) = blocks(GUIDE, "toml")
    groups = tomllib.loads(block)["project"]["entry-points"]
    assert set(groups) == {methods.group, networks.group, datasets.group}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", FENCED.sub("", text_of(page))):
        path, _, anchor = target.partition("#")
        goal = page.parent / path if path else page
        assert goal.exists(), f"{page.name} links to {target}, which does not exist."
        if anchor:
            assert anchor in anchors(goal), f"{page.name} links to {target}, which has no such heading."


def anchors(page: Path) -> set[str]:
    """The anchors of all headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
