"""Fingerprints of every recipe's weights after two steps of each stage: does a change keep all numbers?

    python benchmarks/two_steps.py write before.json     # before the change
    python benchmarks/two_steps.py compare before.json   # after it

The inputs are random and of the shape of the recipe's data, so no data files are needed. A fingerprint is a
hash of each tensor of the method and of the scores of each layer, bit for bit. It is the same only on the
same machine, with the same versions and one thread.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hff.batch import Batch
from hff.data import datasets
from hff.experiment import Experiment
from hff.randomness import seed_of
from hff.recipes import read, recipes
from hff.training import Trainer

SAMPLES = 8


def digest(tensor: Tensor) -> str:
    """A hash of the shape and the bits of a tensor."""
    if tensor.dim() == 0:
        content = tensor.detach().reshape(1).view(torch.uint8).numpy().tobytes()
    else:
        content = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
        content = str(tuple(tensor.shape)).encode() + content
    return hashlib.sha256(content).hexdigest()[:16]


def batch(shape: tuple[int, ...], classes: int, step: int, views: int) -> Batch:
    draw = torch.Generator().manual_seed(seed_of("fingerprint", step))
    x, *others = (torch.randn(SAMPLES, *shape, generator=draw) for _ in range(views))
    y = torch.randint(classes, (SAMPLES,), generator=draw)
    return Batch(x, y, torch.arange(SAMPLES) + step * SAMPLES, (0, 0, 0, step), tuple(others))


def fingerprint(recipe: str) -> dict[str, Any]:
    """The hashes of a recipe's state and scores after two steps of each stage."""
    experiment = Experiment.from_mapping(read(recipe))
    info, options = datasets[experiment.data.name], experiment.data.options
    assert info.in_shape
    assert info.classes
    size = options.get("size")
    shape = (info.in_shape[0], size, size) if size else info.in_shape
    classes = options.get("classes") or info.classes
    method = experiment.create_method(shape, classes)
    batches = [batch(shape, classes, step, method.views) for step in range(2)]
    trainer = Trainer(method, experiment.training)
    stages = [stage for stage in trainer.stages if stage.epochs > 0]
    for number, stage in enumerate(stages):
        trainer.begin(stage)
        torch.manual_seed(number)
        trainer.prepare(batches)
        for each in batches:
            trainer.step(each)
    method.eval()
    with torch.no_grad():
        x = batches[0].x[:4]
        scores = {str(layer): digest(each) for layer, each in method.layer_scores(x)}
        final = digest(method(x))
    return {
        "state": {name: digest(t) for name, t in method.state_dict().items()},
        "scores": scores,
        "final": final,
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """The tensors and scores in which two fingerprints differ."""
    for part in ("state", "scores"):
        for name in sorted({*before[part], *after[part]}):
            if before[part].get(name) != after[part].get(name):
                yield f"{part} {name}"
    if before["final"] != after["final"]:
        yield "final scores"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--recipes", nargs="*", help="the recipes (all)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = given.recipes or list(recipes())
    if given.action == "write":
        given.file.write_text(json.dumps({name: fingerprint(name) for name in names}, indent=1) + "\n")
        return
    before = json.loads(given.file.read_text())
    names = [name for name in names if name in before]
    changed = 0
    for name in names:
        found = list(differences(before[name], fingerprint(name)))
        changed += bool(found)
        if found:
            sys.stdout.write(f"{name}: {len(found)} differences, the first in {found[0]}\n")
    sys.stdout.write(f"{len(names) - changed} of {len(names)} recipes are identical\n")


if __name__ == "__main__":
    main()
