"""`Trainer.step` in a plain training loop: learning, random numbers, stages, learning rates, errors."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hff.batch import Batch
from hff.data import Batches, DataSet
from hff.errors import UserError
from hff.methods import Method, create_method
from hff.networks import create_network
from hff.training import Settings, Trainer


def method_for(data: DataSet, name: str = "hff", norm: str = "none", **options: Any) -> Method:
    return create_method(
        name, create_network("mlp", data.in_shape, 10, widths=(64, 32), norm=norm), 10, **options
    )


def plain_batches(data: DataSet, epochs: int) -> Iterator[Batch]:
    """Batches of inputs and labels only, as from any data loader."""
    batches = Batches(data.train, data.preprocessing, 64, (0, 0), data.augmentation)
    for epoch in range(epochs):
        for batch in batches.epoch(epoch):
            yield Batch(batch.x, batch.y)


def changed(method: Method, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in method.state_dict().items() if not torch.equal(tensor, before[name])}


def copy_of(method: Method) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}


def test_a_plain_loop_lowers_the_loss_and_learns_digits(digits: DataSet) -> None:
    method = method_for(digits)
    trainer = Trainer(method, Settings(learning_rate=3e-3))
    losses = [trainer.step(batch) for batch in plain_batches(digits, epochs=5)]
    assert losses[0].keys() == {"block0", "block1"}
    assert trainer.steps == len(losses)
    for group in losses[0]:
        first, last = (
            torch.stack([each[group] for each in part]).mean() for part in (losses[:5], losses[-5:])
        )
        assert last < 0.5 * first
    assert digits.test is not None
    (test,) = Batches.in_order(digits.test, digits.preprocessing, len(digits.test)).epoch(0)
    with torch.no_grad():
        accuracy = (method.eval()(test.x).argmax(1) == test.y).float().mean()
    assert accuracy > 0.85


@pytest.mark.parametrize("name", ["noprop_dt", "ff"])
def test_the_noise_of_a_batch_without_a_key_depends_on_seed_and_step(name: str, digits: DataSet) -> None:
    batch = next(plain_batches(digits, epochs=1))

    def losses(seed: int) -> list[float]:
        """The total loss of the same batch in two steps that do not change the weights."""
        trainer = Trainer(method_for(digits, name), Settings(optimizer="sgd"), seed=seed)
        return [float(sum(trainer.step(batch, learning_rate=0.0).values())) for _ in range(2)]

    first, second = losses(seed=0)
    assert first != second
    assert losses(seed=0) == [first, second]
    assert losses(seed=1)[0] != first


def test_the_key_of_a_batch_takes_precedence_over_the_seed(digits: DataSet) -> None:
    batch = replace(next(plain_batches(digits, epochs=1)), key=(0, 0, 0, 7))
    one, other = (
        Trainer(method_for(digits, "noprop_dt"), seed=seed).step(batch)["block0"] for seed in range(2)
    )
    assert torch.equal(one, other)


def test_begin_starts_the_next_stage_of_a_greedy_method(digits: DataSet) -> None:
    method = method_for(digits, layer_order="greedy")
    trainer = Trainer(method)
    batch = next(plain_batches(digits, epochs=1))
    for layer, stage in enumerate(trainer.stages):
        trainer.begin(stage)
        before = copy_of(method)
        assert list(trainer.step(batch)) == [f"block{layer}"]
        learned = changed(method, before)
        assert f"blocks.{layer}.affine.weight" in learned
        assert not any(name.startswith(f"blocks.{1 - layer}.") for name in learned)


def test_the_learning_rate_of_a_step_replaces_that_of_the_settings(digits: DataSet) -> None:
    batch = next(plain_batches(digits, epochs=1))

    def step_of(learning_rate: float | None) -> Tensor:
        method = method_for(digits, "backprop")
        before = copy_of(method)
        Trainer(method, Settings(optimizer="sgd", learning_rate=0.1)).step(batch, learning_rate)
        return method.state_dict()["blocks.0.affine.weight"] - before["blocks.0.affine.weight"]

    assert step_of(None).abs().max() > 0
    assert torch.allclose(step_of(0.3), 3 * step_of(None), rtol=1e-3, atol=1e-7)
    assert step_of(0.0).abs().max() == 0


def test_unsupported_settings_are_refused(digits: DataSet) -> None:
    with pytest.raises(UserError, match="batch norm; remove micro_batch_size"):
        Trainer(method_for(digits, norm="batch"), Settings(micro_batch_size=16))
    with pytest.raises(UserError, match="steps within the batch; remove micro_batch_size"):
        Trainer(method_for(digits, "ffcl"), Settings(micro_batch_size=16))
    with pytest.raises(UserError, match=r"Equilibrium .* needs float32"):
        Trainer(method_for(digits, "equilibrium_prop"), Settings(precision="bfloat16"))
