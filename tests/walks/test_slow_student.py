"""A student: sees a network learn without backprop, asks it about images, and compares it with backprop."""

import re
from pathlib import Path

import pytest
from walks.conftest import WIDTH, Shell, suggested

pytestmark = pytest.mark.slow

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_a_student_trains_looks_and_asks(shell: Shell) -> None:
    help_text = shell.run("hff")
    assert "Start with `hff train`" in help_text
    screen = shell.on_terminal("hff train --epochs 6")
    assert "\x1b[?25l" in screen, "the progress is shown live"
    lines = [line.rstrip() for line in CONTROL.sub("", screen).replace("\r", "").split("\n")]
    table = lines[len(lines) - lines[::-1].index("layer  validation accuracy  over the epochs") - 1 :]
    # The curves of all layers stay on the screen.
    assert [row.split()[0] for row in table[1:4]] == ["0", "1", "2"]
    assert all(re.search("[▁▂▃▄▅▆▇█]{6}", row) for row in table[1:4])
    assert (shell.folder / "runs/digits-seed0/curves.png").stat().st_size > 5000

    evaluated = shell.run(suggested("\n".join(table), "eval"))
    accuracy = float(re.search(r"test: ([\d.]+) %", evaluated)[1])  # type: ignore[index]
    assert accuracy > 90
    assert max(map(len, evaluated.splitlines())) <= WIDTH

    samples = shell.run("hff data samples")
    predicted = shell.run(suggested(samples, "predict").replace("RUN", "runs/digits-seed0"))
    assert re.search(r"eight\.png +8 +9\d", predicted)
    assert "--invert" in predicted
    inverted = shell.run("hff predict runs/digits-seed0 scans/seven-dark-on-white.png --invert")
    assert re.search(r"white\.png +7 ", inverted)
    assert max(map(len, (predicted + inverted).splitlines())) <= WIDTH


def test_a_student_compares_with_backprop_and_makes_mistakes(shell: Shell) -> None:
    compared = shell.run("hff compare --methods hff,backprop,ff --epochs 2")
    ranked = re.findall(r"^ *\d(?:-\d)? +(hff|backprop|ff) ", compared, re.MULTILINE)
    assert sorted(ranked) == ["backprop", "ff", "hff"]
    assert "did you mean 'train'" in shell.run("hff trian", code=2)
    assert "did you mean '--epochs'" in shell.run("hff train --epoch 3", code=2)
    assert "learning_rate" in shell.run("hff train --learning-rate -1", code=2)
    assert not Path(shell.folder, "runs/digits-seed0").exists()


def test_a_student_copies_the_program_of_the_readme(shell: Shell) -> None:
    readme = Path(__file__).parents[2] / "README.md"
    program = readme.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    printed = shell.python(program)
    shares = [float(share) for share in re.findall(r"([\d.]+)% ", printed)]
    assert len(shares) == 3
    assert min(shares) > 90
