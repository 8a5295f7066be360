"""Bytes of live tensors, and what a training step keeps alive."""

import pytest
import torch

from hff.bench.cost import random_batch
from hff.bench.live import LiveBytes, peak_live_bytes
from hff.methods import create_method
from hff.networks import create_network
from hff.training import Settings, Trainer

BATCH, CHANNELS, SIDE = 4, 16, 16
MAP = BATCH * CHANNELS * SIDE * SIDE * 4
"""Bytes of the map of one convolution."""


@pytest.fixture(autouse=True)
def _step_every_group_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients of small groups wait for each other, up to a bound above the maps of these tests."""
    monkeypatch.setattr("hff.training.trainer.TOGETHER", 0)


def test_bytes_are_counted_until_the_tensor_is_gone() -> None:
    with LiveBytes() as live:
        kept = torch.ones(100)
        view = kept[:50].view(5, 10)
        kept.add_(1)
        assert live.now == 400
        del kept
        assert live.now == 400
        del view
        assert (live.now, live.peak) == (0, 400)


def peak(name: str, depth: int, **options: object) -> int:
    network = create_network("cnn", (3, SIDE, SIDE), 5, channels=(CHANNELS,) * depth, pool=1)
    trainer = Trainer(create_method(name, network, 5, **options), Settings(batch_size=BATCH))
    batch = random_batch((3, SIDE, SIDE), 5, BATCH)
    trainer.step(batch)
    return peak_live_bytes(lambda: trainer.step(batch))


@pytest.mark.parametrize("name", ["hff", "mono_forward"])
def test_the_peak_of_a_local_step_is_that_of_one_layer_at_any_depth(name: str) -> None:
    options = {"head_hidden": 8, "aux_channels": (8,)} if name == "hff" else {}
    shallow, deep = (peak(name, depth, **options) for depth in (3, 12))
    assert deep < shallow + MAP / 4
    # The input and the output of the layer, and one gradient.
    assert deep < 3.5 * MAP


def test_backprop_keeps_the_map_of_every_layer_and_checkpointing_fewer() -> None:
    assert peak("backprop", 12) - peak("backprop", 3) > 8.5 * MAP
    assert peak("backprop", 12, checkpointing=True) < 0.8 * peak("backprop", 12)


def test_the_features_and_gradients_of_an_mlp_are_bounded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hff.methods.families.local.TOGETHER", 3 * 64 * 32 * 4)
    found = []
    for depth in (8, 32):
        network = create_network("mlp", (32,), 5, widths=(32,) * depth)
        trainer = Trainer(create_method("hff", network, 5), Settings(batch_size=64))
        batch = random_batch((32,), 5, 64)
        trainer.step(batch)
        found.append(peak_live_bytes(lambda trainer=trainer, batch=batch: trainer.step(batch)))
    # The losses of the layers, which the step returns, are all that grows.
    assert found[1] <= found[0] + 24 * 64
