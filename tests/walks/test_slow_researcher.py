"""A researcher: several seeds, interruptions, a rule of one's own, and every layer from Python."""

import json
import signal
import subprocess
import sys
import time

import pytest
from walks.conftest import Shell

pytestmark = pytest.mark.slow

NAMES = ("straight", "killed")

OWN_RULE = """
import sys, torch, hff
from hff.methods.families.local import LocalMethod
from hff.methods.method import MethodInfo, register

@register
class Linear(LocalMethod):
    name = "linear_heads"
    info = MethodInfo("Linear heads", "none")

    def __init__(self, network, classes, *, with_gain: bool = False):
        super().__init__(network, classes)
        self.gain = torch.nn.Parameter(torch.ones(())) if with_gain else 1.0
        self.heads = torch.nn.ModuleList(
            torch.nn.Linear(torch.Size(block.out_shape).numel(), classes) for block in self.blocks
        )

    def scores(self, layer, features):
        return self.gain * self.heads[layer](features.flatten(1))

    def loss(self, layer, features, batch):
        return torch.nn.functional.cross_entropy(self.scores(layer, features), batch.y)

data = hff.load_data("digits")
network = hff.create_network("mlp", data.in_shape, 10, widths=(64, 64))
for with_gain in (False, True):
    method = hff.create_method("linear_heads", network, 10, with_gain=with_gain)
    try:
        hff.fit(method, data, hff.Settings(epochs=4, batch_size=64))
    except hff.UserError as error:
        print("refused:", error)
    else:
        print([round(layer.accuracy, 3) for layer in hff.evaluate(method, data).layers])
"""


def test_seeds_a_kill_and_a_longer_training(shell: Shell) -> None:
    shell.run("hff train --seeds 0,1 --epochs 2 --out runs/seeds")
    result = json.loads(shell.run("hff eval runs/seeds --json"))
    assert result["accuracy"]["mean"] > 0.8
    assert result["accuracy"]["std"] > 0

    shell.run("hff train --epochs 6 --out runs/straight --quiet")
    argv = [sys.executable, "-m", "hff", "train", "--epochs", "6", "--out", "runs/killed", "--quiet"]
    process = subprocess.Popen(argv, cwd=shell.folder, env=shell.environment)
    checkpoint = shell.folder / "runs/killed/checkpoint.safetensors"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    shell.run("hff train --resume runs/killed --quiet")
    assert "is already finished" in shell.run("hff train --resume runs/killed")
    weights = [
        (shell.folder / f"runs/{name}/calibration.json").read_text() for name in ("straight", "killed")
    ]
    assert weights[0] == weights[1]

    shell.run("hff train --resume runs/killed --epochs 8 --quiet")
    assert json.loads(shell.run("hff train --resume runs/killed --json"))["epochs"] == 8


def test_every_layer_from_python(shell: Shell) -> None:
    shell.run("hff train --epochs 4 --quiet")
    printed = shell.python(
        "import hff, torch\n"
        "method = hff.load_method('runs/digits-seed0')\n"
        "data = hff.load_data('digits')\n"
        "stored = data.test.fetch(torch.arange(50))\n"
        "x = data.preprocessing(stored)\n"
        "scores = dict(method.layer_scores(x))\n"
        "assert torch.equal(method(x), scores[2])\n"
        "found = [each.index for each in hff.predict(method, stored)]\n"
        "assert found == scores[2].argmax(1).tolist()\n"
        "print(sum(a == b for a, b in zip(found, data.test.labels.tolist())))\n"
    )
    assert int(printed) > 42


def test_a_rule_of_ones_own_trains_all_of_its_parameters_or_is_refused(shell: Shell) -> None:
    trained, refused = shell.python(OWN_RULE).splitlines()
    assert min(json.loads(trained)) > 0.85
    assert refused.startswith("refused: Linear heads would never train 'gain'")
