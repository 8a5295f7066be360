"""What every registered method must do, on every network that it supports."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
import torch

from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import Method, Stage, create_method, methods
from hff.methods.method import group_layer
from hff.networks import Network, create_network
from hff.randomness import seed_of
from hff.training import Settings, fit
from hff.training.optimizers import Optimizers

SMALL: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "mlp": ((1, 8, 8), {"widths": (24, 20)}),
    "cnn": ((3, 8, 8), {"channels": (8, 8, 12)}),
    "alexnet": ((3, 63, 63), {"width_factor": 1 / 32}),
    "vgg11": ((3, 32, 32), {"width_factor": 1 / 32}),
    "vgg16": ((3, 32, 32), {"width_factor": 1 / 32}),
}
RIVALS: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "trifecta": ((3, 8, 8), {"width_factor": 1 / 32}),
    "channelwise": ((1, 8, 8), {"channels": (8, 8)}),
    "simcnn": ((3, 8, 8), {"widths": (8, 8, 12), "downsample_at": (1,)}),
    "vgg8b": ((3, 16, 16), {"width_factor": 1 / 64}),
    "vgg11b": ((3, 16, 16), {"width_factor": 1 / 64}),
    "cnn_ff": ((1, 8, 8), {"channels": (8, 8), "kernel": 3}),
    "dll_cnn": ((1, 28, 28), {"like": "mnist", "width_factor": 1 / 8}),
    "noprop": ((1, 8, 8), {"width_factor": 1 / 16}),
    "direct_feedback": ((3, 16, 16), {"width_factor": 1 / 64}),
    "equilibrium_cnn": ((1, 16, 16), {"like": "mnist", "width_factor": 1 / 8}),
    "softhebb": ((3, 8, 8), {"width_factor": 1 / 12}),
    "hebb_cnn": ((1, 24, 24), {"width_factor": 1 / 8}),
    "vgg5": ((3, 16, 16), {"width_factor": 1 / 32}),
}
"""Tables of single methods: every other method can train them too, which one test looks at."""
CLASSES = 4


def small(name: str) -> Network:
    shape, options = {**SMALL, **RIVALS}[name]
    return create_network(name, shape, CLASSES, **options)


def pairs(tables: Iterable[str] = SMALL) -> Iterator[tuple[str, str]]:
    for method, cls in methods.items():
        for name in tables:
            if cls.unsupported_reason(small(name), CLASSES) is None:
                yield method, name


def batches(net: Network, count: int, size: int = 6) -> list[Batch]:
    draw = torch.Generator().manual_seed(0)
    return [
        Batch(
            torch.randn(size, *net.in_shape, generator=draw),
            torch.randint(0, CLASSES, (size,), generator=draw),
            torch.arange(size) + step * size,
            (0, 0, 0, step),
        )
        for step in range(count)
    ]


def train(method: Method, stage: Stage, optimizers: Optimizers, steps: list[Batch]) -> None:
    method.enter(stage)
    for batch in steps:
        torch.manual_seed(seed_of(*batch.key))  # what the loop does for dropout
        for group, _ in method.update(batch, stage):
            optimizers.step(group, 1e-2)
            method.after_step(group)


@pytest.mark.parametrize(("name", "net"), list(pairs([*SMALL, *RIVALS])))
def test_two_steps_resume_bit_exactly(name: str, net: str) -> None:
    table = small(net)
    settings = Settings(learning_rate=1e-2)
    straight = create_method(name, table, CLASSES, seed=3)
    before = copy.deepcopy(straight.state_dict())
    for number, stage in enumerate(straight.stages(2)):
        optimizers = Optimizers(straight, stage, settings)
        first, second = batches(table, 2)
        straight.prepare(stage, lambda first=first, second=second: [first, second])
        train(straight, stage, optimizers, [first])
        resumed = create_method(name, table, CLASSES, seed=99)
        resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
        again = Optimizers(resumed, resumed.stages(2)[number], settings)
        again.load_state({key: value.clone() for key, value in optimizers.state().items()})
        train(straight, stage, optimizers, [second])
        train(resumed, stage, again, [second])
        assert all(torch.equal(a, resumed.state_dict()[key]) for key, a in straight.state_dict().items())
    assert any(not torch.equal(a, before[key]) for key, a in straight.state_dict().items())


@pytest.mark.parametrize(("name", "net"), list(pairs()))
def test_every_parameter_is_in_a_group_and_learns(name: str, net: str) -> None:
    table = small(net)
    method = create_method(name, table, CLASSES)
    grouped: set[torch.Tensor] = set()
    for stage in method.stages(1):
        for sets in method.parameter_groups(stage).values():
            grouped |= {p for each in sets for p in each.parameters}
    assert grouped == set(method.parameters())


@pytest.mark.parametrize(("name", "net"), list(pairs()))
def test_gradients_reach_exactly_as_far_as_declared(name: str, net: str) -> None:
    method = create_method(name, small(net), CLASSES)
    reach = method.info.gradient_reach
    stage = method.stages(1)[0]
    method.enter(stage)
    (batch,) = batches(small(net), 1, size=32)
    depth = len(method.blocks)
    for group, _ in method.update(batch, stage):
        touched = {
            layer
            for layer in range(depth)
            if any(p.grad is not None for p in method.blocks[layer].parameters())
        }
        if reach == "all":
            assert touched == set(range(depth))
        else:
            own = group_layer(group)
            expected = set() if own is None else set(range(max(0, own - reach), own + 1))
            assert touched == expected
        method.zero_grad(set_to_none=True)


@pytest.mark.parametrize(("name", "net"), list(pairs()))
def test_scores_have_one_column_a_class_and_forward_is_deterministic(name: str, net: str) -> None:
    table = small(net)
    method = create_method(name, table, CLASSES).eval()
    x = torch.randn(3, *table.in_shape)
    layers = list(method.layer_scores(x))
    assert layers
    assert all(scores.shape == (3, CLASSES) for _, scores in layers)
    assert torch.equal(method(x), method(x))
    assert torch.allclose(method(x), method.combine_scores(dict(layers)), atol=1e-5)


@pytest.mark.parametrize(("name", "net"), list(pairs()))
def test_gradients_are_means_and_add_up(name: str, net: str) -> None:
    # In double precision: a rule that divides small differences by a small number would drown in round-off.
    method = create_method(name, small(net), CLASSES).double()
    if not method.info.data_parallel:
        pytest.skip("its loss relates the samples of a batch to each other")
    stage = method.stages(1)[0]
    method.eval()
    (single,) = batches(small(net), 1, size=8)
    whole = replace(single, x=single.x.double())

    def gradients(parts: list[Batch]) -> list[torch.Tensor]:
        method.zero_grad(set_to_none=True)
        for part in parts:
            for _ in method.update(part, stage):
                pass
        return [p.grad / len(parts) for p in method.parameters() if p.grad is not None]

    halves = [
        Batch(whole.x[half], whole.y[half], whole.index[half], whole.key)
        for half in (slice(0, 4), slice(4, 8))
    ]
    for a, b in zip(gradients([whole]), gradients(halves), strict=True):
        assert torch.allclose(a, b, atol=1e-9 * max(1.0, float(a.abs().max())))


@pytest.mark.parametrize("name", methods)
def test_beats_chance_on_digits(name: str, digits: DataSet) -> None:
    net = create_network("mlp", digits.in_shape, 10, widths=(64, 64))
    if methods[name].unsupported_reason(net, 10):
        net = create_network("cnn", digits.in_shape, 10, channels=(30, 60))
    summary = fit(create_method(name, net, 10), digits, Settings(epochs=6, batch_size=32, learning_rate=3e-3))
    assert summary["read_out_accuracy"] > 0.8


@pytest.mark.parametrize("name", methods)
def test_facts_are_complete(name: str) -> None:
    facts = methods[name].info
    assert facts.title
    assert facts.paper
    assert facts.passes
    assert methods[name].__doc__


def test_initialisation_hangs_on_the_seed_alone() -> None:
    one, same = (
        create_method("hff", small("mlp"), CLASSES, seed=1),
        create_method("hff", small("mlp"), CLASSES, seed=1),
    )
    other = create_method("hff", small("mlp"), CLASSES, seed=2)
    state = torch.random.get_rng_state()
    create_method("hff", small("mlp"), CLASSES, seed=5)
    assert torch.equal(state, torch.random.get_rng_state())
    weight = "blocks.0.affine.weight"
    assert torch.equal(one.state_dict()[weight], same.state_dict()[weight])
    assert not torch.equal(one.state_dict()[weight], other.state_dict()[weight])


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="did you mean 'backprop'"):
        create_method("backprob", small("mlp"), CLASSES)
    with pytest.raises(UserError, match="did you mean 'temperature'"):
        create_method("hff", small("mlp"), CLASSES, temprature=3)
    with pytest.raises(UserError, match="at least 2 classes"):
        create_method("hff", small("mlp"), 1)
    with pytest.raises(UserError, match="read_out 7 is no layer"):
        create_method("hff", small("mlp"), CLASSES, read_out=7)
