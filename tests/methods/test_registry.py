"""Tests that every registered method must pass."""

import copy
from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch

from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import create_method, methods
from hff.methods.method import group_layer, group_name
from hff.networks import Network, create_network
from hff.training import Settings, Trainer, fit

SMALL: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "mlp": ((1, 8, 8), {"widths": (24, 20)}),
    "cnn": ((3, 8, 8), {"channels": (8, 8, 12)}),
    "alexnet": ((3, 63, 63), {"width_factor": 1 / 32}),
    "vgg11": ((3, 32, 32), {"width_factor": 1 / 32}),
    "vgg16": ((3, 32, 32), {"width_factor": 1 / 32}),
    "resnet": ((3, 8, 8), {"depth": 8, "width_factor": 1 / 2}),
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
"""Networks made for single methods; only the test of resuming trains them with all methods."""
FEWER_STEPS: dict[str, dict[str, object]] = {"noprop_dt": {"steps": 2}}
"""Options for the slowest tests: each step of NoProp is a network of its own, and two are as good as ten."""
TYPICAL = ["mlp", "cnn", "vgg11", "resnet"]
CLASSES = 4


def small(name: str) -> Network:
    shape, options = {**SMALL, **RIVALS}[name]
    return create_network(name, shape, CLASSES, **options)


def pairs(networks: Iterable[str], *, supported: bool = True) -> list[tuple[str, str]]:
    """The names of methods and networks that are supported together, or that are not."""
    return [
        (method, name)
        for method, cls in methods.items()
        for name in networks
        if (cls.unsupported_reason(small(name), CLASSES) is None) == supported
    ]


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


@pytest.mark.parametrize(("name", "net"), pairs([*SMALL, *RIVALS]))
def test_two_steps_resume_bit_exactly(name: str, net: str) -> None:
    table = small(net)
    settings = Settings(learning_rate=1e-2, epochs=2)
    options = FEWER_STEPS.get(name, {})
    straight = create_method(name, table, CLASSES, seed=3, **options)
    before = copy.deepcopy(straight.state_dict())
    trainer = Trainer(straight, settings)
    for stage in straight.stages(2):
        first, second = batches(table, 2)
        trainer.begin(stage)
        trainer.prepare([first, second])
        trainer.step(first)
        resumed = create_method(name, table, CLASSES, seed=99, **options)
        resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
        again = Trainer(resumed, settings, stage=stage)
        state = trainer.optimizers.state()
        again.optimizers.load_state({key: value.clone() for key, value in state.items()})
        trainer.step(second)
        again.step(second)
        assert all(torch.equal(a, resumed.state_dict()[key]) for key, a in straight.state_dict().items())
    assert any(not torch.equal(a, before[key]) for key, a in straight.state_dict().items())


@pytest.mark.parametrize(("name", "net"), pairs(TYPICAL, supported=False))
def test_an_unsupported_network_raises_an_error_of_one_sentence(name: str, net: str) -> None:
    with pytest.raises(UserError) as error:
        create_method(name, small(net), CLASSES)
    text = str(error.value)
    assert text.endswith(".")
    assert ". " not in text
    assert methods[name].info.title in text or "Channel-wise" in text


@pytest.mark.parametrize(("name", "net"), pairs(["vgg11"]))
def test_every_parameter_of_a_deep_network_is_in_a_group(name: str, net: str) -> None:
    method = create_method(name, small(net), CLASSES)
    grouped: set[torch.Tensor] = set()
    for stage in method.stages(2):
        for sets in method.parameter_groups(stage).values():
            grouped |= {p for each in sets for p in each.parameters}
    assert grouped == set(method.parameters())


@pytest.mark.parametrize(("name", "net"), pairs(["mlp", "cnn", "resnet"]))
def test_every_parameter_is_in_a_group_and_learns(name: str, net: str) -> None:
    method = create_method(name, small(net), CLASSES)
    learned: set[torch.Tensor] = set()
    trainer = Trainer(method, Settings(epochs=2, learning_rate=1e-2))
    for stage in method.stages(2):
        trainer.begin(stage)
        given = batches(small(net), 4, size=16)
        trainer.prepare(given)
        groups = method.parameter_groups(stage).values()
        members = {p for sets in groups for each in sets for p in each.parameters}
        assert members <= set(method.parameters())
        before = {p: p.detach().clone() for p in members}
        for batch in given:
            trainer.step(batch)
        learned |= {p for p in members if not torch.equal(p, before[p])}
    assert [key for key, parameter in method.named_parameters() if parameter not in learned] == []


@pytest.mark.parametrize(("name", "net"), pairs(TYPICAL))
def test_gradients_reach_exactly_as_far_as_declared(name: str, net: str) -> None:
    """In every stage, the loss of a group has gradients only for blocks and heads within reach."""
    method = create_method(name, small(net), CLASSES)
    reach = method.info.gradient_reach
    names = {parameter: key for key, parameter in method.named_parameters()}
    layers = {p: layer for layer, block in enumerate(method.blocks) for p in block.parameters()}
    farthest = 0
    reaches_first_block = False
    for stage in method.stages(2):
        groups = {
            group: {p for each in sets for p in each.parameters}
            for group, sets in method.parameter_groups(stage).items()
        }
        given = batches(small(net), 2, size=32)
        method.eval()
        method.prepare(stage, lambda given=given: given)
        method.enter(stage)
        for group, _ in method.update(given[0], stage):
            touched = {p for p in method.parameters() if p.grad is not None}
            own = group_layer(group)
            if own is None or reach == "all":
                allowed = groups[group]
            else:
                near = range(max(0, own - int(reach)), own + 1)
                allowed = set().union(*(groups.get(group_name(layer), set()) for layer in near))
            assert {names[p] for p in touched} <= {names[p] for p in allowed}
            assert touched & groups[group] or not groups[group]
            found = {layers[p] for p in touched if p in layers}
            reaches_first_block |= 0 in found
            if own is not None and found:
                farthest = max(farthest, own - min(found))
            method.zero_grad(set_to_none=True)
    assert reaches_first_block
    assert reach == "all" or farthest == reach


@pytest.mark.parametrize(("name", "net"), pairs(["mlp", "cnn"]))
def test_the_first_block_depends_on_the_blocks_above_only_if_declared(name: str, net: str) -> None:
    method = create_method(name, small(net), CLASSES)
    stage = method.stages(2)[0]
    given = batches(small(net), 2, size=16)
    method.eval()
    method.prepare(stage, lambda: given)

    def gradients_of_the_first_block() -> list[torch.Tensor]:
        method.enter(stage)
        total = [torch.zeros_like(p) for p in method.blocks[0].parameters()]
        for batch in given:
            torch.manual_seed(0)
            for _ in method.update(batch, stage):
                for sum_, p in zip(total, method.blocks[0].parameters(), strict=True):
                    sum_ += 0 if p.grad is None else p.grad
                method.zero_grad(set_to_none=True)
        return total

    before = gradients_of_the_first_block()
    with torch.no_grad():
        for block in method.blocks[1:]:
            for parameter in block.parameters():
                parameter.mul_(0.7)
    assert any(total.any() for total in before)
    after = gradients_of_the_first_block()
    equal = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert equal == (not method.top_signal)


@pytest.mark.parametrize(("name", "net"), pairs(TYPICAL))
def test_scores_have_one_column_per_class_and_depend_only_on_the_sample(name: str, net: str) -> None:
    table = small(net)
    method = create_method(name, table, CLASSES).eval()
    x = torch.randn(3, *table.in_shape)
    layers = list(method.layer_scores(x))
    assert layers
    assert all(scores.shape == (3, CLASSES) for _, scores in layers)
    assert torch.equal(method(x), method(x))
    assert torch.allclose(method(x[1:2]), method(x)[1:2], rtol=1e-4, atol=1e-5)
    assert torch.allclose(method(x), method.combine_scores(dict(layers)), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "net"),
    [pair for pair in pairs(["mlp", "vgg11", "resnet"]) if methods[pair[0]].info.data_parallel],
)
def test_gradients_are_means_over_samples(name: str, net: str) -> None:
    # In double precision, because some rules divide small differences by a small number.
    method = create_method(name, small(net), CLASSES).double()

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


@pytest.mark.parametrize(("name", "net"), pairs(["mlp", "cnn"]))
def test_micro_batches_give_the_step_of_the_whole_batch_or_are_refused(name: str, net: str) -> None:
    given = [replace(batch, x=batch.x.double()) for batch in batches(small(net), 2, size=8)]
    whole, parts = (create_method(name, small(net), CLASSES).double() for _ in range(2))
    settings = Settings(optimizer="sgd", learning_rate=0.1)
    micro = replace(settings, micro_batch_size=3)
    if whole.samples_interact or whole.steps_within_batch:
        with pytest.raises(UserError, match="batch"):
            Trainer(parts, micro)
        return
    one, several = Trainer(whole, settings), Trainer(parts, micro)
    for batch in given:
        losses, again = one.step(batch), several.step(batch)
        assert {group: float(loss) for group, loss in losses.items()} == pytest.approx(
            {group: float(loss) for group, loss in again.items()}, rel=1e-5
        )
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-9)


@pytest.mark.parametrize(("name", "net"), pairs(["mlp", "cnn"]))
def test_bfloat16_trains_like_float32_or_is_refused(name: str, net: str) -> None:
    given = batches(small(net), 3, size=32)
    settings = Settings(precision="bfloat16", learning_rate=1e-3)
    if not methods[name].info.autocast:
        with pytest.raises(UserError, match="needs float32"):
            Trainer(create_method(name, small(net), CLASSES), settings)
        return
    losses = []
    for precision in ("float32", "bfloat16"):
        method = create_method(name, small(net), CLASSES)
        trainer = Trainer(method, replace(settings, precision=precision))
        trainer.prepare(given)
        found = [trainer.step(batch) for batch in given][-1]
        assert all(loss.dtype == torch.float32 for loss in found.values())
        assert all(p.dtype == torch.float32 for p in method.parameters())
        losses.append({group: float(loss) for group, loss in found.items()})
    assert losses[1] == pytest.approx(losses[0], rel=0.05, abs=0.01)


@pytest.mark.parametrize("name", methods)
def test_learns_digits(name: str, digits: DataSet) -> None:
    net = create_network("mlp", digits.in_shape, 10, widths=(64, 64))
    if methods[name].unsupported_reason(net, 10):
        net = create_network("cnn", digits.in_shape, 10, channels=(30, 60))
    method = create_method(name, net, 10, **FEWER_STEPS.get(name, {}))
    summary = fit(method, digits, Settings(epochs=6, batch_size=32, learning_rate=3e-3))
    assert summary["read_out_accuracy"] > 0.8


def test_every_method_has_title_paper_and_docstring() -> None:
    for method in methods.values():
        assert method.info.title
        assert method.info.paper
        assert method.__doc__


def test_initialization_depends_only_on_the_seed() -> None:
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


def test_invalid_options_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="did you mean 'backprop'"):
        create_method("backprob", small("mlp"), CLASSES)
    with pytest.raises(UserError, match="did you mean 'temperature'"):
        create_method("hff", small("mlp"), CLASSES, temprature=3)
    with pytest.raises(UserError, match="at least 2 classes"):
        create_method("hff", small("mlp"), 1)
    with pytest.raises(UserError, match="read_out 7 is not a layer"):
        create_method("hff", small("mlp"), CLASSES, read_out=7)
    (batch,) = batches(small("mlp"), 1)
    with pytest.raises(UserError, match="has no local step"):
        create_method("dfa", small("mlp"), CLASSES).layer_step(0, batch.x, batch)
