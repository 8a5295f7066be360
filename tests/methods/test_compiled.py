"""`compile`: the same results, every layer trained, refusals. The fast tests trace without C++ code."""

import copy
import pickle
from typing import Any

import pytest
import torch

from hff.batch import Batch
from hff.data import DataSet
from hff.errors import UserError
from hff.methods import Method, compiled, create_method, methods
from hff.methods.compiled import Compilable, Compiled
from hff.networks import create_network
from hff.training import Listener, Run, Settings, Trainer, fit
from hff.training.trainer import unsupported_settings

PLAIN: dict[str, Any] = {"closed_form": False, "learning_rate": 1e-2, "optimizer": "sgd"}


@pytest.fixture(autouse=True)
def traced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if "slow" not in request.keywords:
        monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    yield
    torch._dynamo.reset()


def method_of(name: str, **options: Any) -> Method:
    network, width = "mlp", {"widths": (20, 20)}
    if {"cnn_ff", "cwconv"} & {name}:
        network, width = "cnn", {"channels": (20, 20)}
    shape = (1, 8, 8)
    # Compiled or not, dropout drops the same units.
    dropout = 0.1 if name in ("hff", "backprop") else 0.0
    return create_method(name, create_network(network, shape, 4, dropout=dropout, **width), 4, **options)


def batches(method: Method, count: int) -> list[Batch]:
    draw = torch.Generator().manual_seed(0)
    found = []
    for step in range(count):
        views = [torch.randn(12, 1, 8, 8, generator=draw) for _ in range(method.views)]
        labels = torch.arange(12) % 4
        found.append(Batch(views[0], labels, torch.arange(12), (0, step), tuple(views[1:])))
    return found


def steps(method: Method, settings: Settings, count: int = 3) -> Any:
    trainer = Trainer(method, settings)
    losses = [trainer.step(batch) for batch in batches(method, count)]
    return losses, method.state_dict()


def compiles(name: str) -> bool:
    method = method_of(name)
    return isinstance(method, Compilable) and method.compiles


COMPILED = [name for name in methods if compiles(name)]


def test_the_methods_that_compile() -> None:
    assert {"backprop", "hff", "ff", "mono_forward", "symba", "simcnn", "local_errors"} <= set(COMPILED)


@pytest.mark.parametrize("name", COMPILED)
def test_results_are_those_without_compiling(name: str) -> None:
    expected = steps(method_of(name), Settings(**PLAIN))
    method = method_of(name)
    assert isinstance(method, Compilable)
    torch.testing.assert_close(steps(method, Settings(**PLAIN, compile=True)), expected, rtol=0, atol=2e-6)
    assert method.compiled is not None
    assert method.compiled._functions


@pytest.mark.parametrize("name", sorted(set(methods) - set(COMPILED)))
def test_other_methods_are_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match="cannot be compiled, because it has a training step of its own"):
        Trainer(method_of(name), Settings(compile=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["backprop", "hff", "ff"])
def test_compiled_code_has_the_same_results(name: str) -> None:
    expected = steps(method_of(name), Settings(**PLAIN))
    compiled = steps(method_of(name), Settings(**PLAIN, compile=True))
    torch.testing.assert_close(compiled, expected, rtol=0, atol=5e-6)


@pytest.mark.slow
def test_compiled_code_trains_every_layer_of_a_greedy_training() -> None:
    assert_greedy_training_trains_every_layer()


def test_a_greedy_training_trains_every_layer() -> None:
    assert_greedy_training_trains_every_layer()


def assert_greedy_training_trains_every_layer() -> None:
    method = method_of("hff", layer_order="greedy")
    trainer = Trainer(method, Settings(**PLAIN, compile=True))
    for layer, stage in enumerate(trainer.stages):
        trainer.begin(stage)
        before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
        for batch in batches(method, 2):
            trainer.step(batch)
        changed = {
            name for name, tensor in method.state_dict().items() if not torch.equal(tensor, before[name])
        }
        learned = {name for name, _ in method.named_parameters() if f"s.{layer}." in name}
        assert changed == learned
    assert isinstance(method, Compilable)
    assert method.compiled is not None
    assert len(method.compiled._functions) == 2


def test_there_is_a_function_for_each_set_of_parameters_that_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(compiled, "_compiled", lambda function: made.append(function) or function)
    functions, layer = Compiled(), torch.nn.Linear(2, 2)
    x = torch.randn(1, 2)
    for learns, versions in ((False, 1), (True, 2), (False, 2)):
        layer.weight.requires_grad_(learns)
        functions("layer", layer, layer.parameters(), x)
        assert len(made) == versions
    functions("other", layer, layer.parameters(), x)
    assert len(made) == 3


@pytest.mark.parametrize("name", ["backprop", "hff"])
def test_a_layer_that_was_frozen_by_hand_learns_when_it_is_not_frozen_any_more(name: str) -> None:
    method = method_of(name)
    first = method.affine_block(0).affine
    assert first.bias is not None
    # Some parameters of the layer learn, so that its loss has a gradient.
    first.weight.requires_grad_(False)
    trainer = Trainer(method, Settings(**PLAIN, compile=True))
    before = first.weight.clone()
    trainer.step(batches(method, 1)[0])
    assert torch.equal(first.weight, before)
    first.weight.requires_grad_(True)
    Trainer(method, Settings(**PLAIN, compile=True)).step(batches(method, 1)[0])
    assert not torch.equal(first.weight, before)


def test_a_greedy_run_resumes_with_identical_bits(digits: DataSet, tmp_path: Any) -> None:
    settings = Settings(**PLAIN, compile=True, epochs=1, batch_size=256)

    def method() -> Method:
        network = create_network("mlp", digits.in_shape, 10, widths=(16, 16))
        return create_method("hff", network, 10, layer_order="greedy")

    whole = method()
    fit(whole, digits, settings, run=Run.create(tmp_path / "whole", {}, digits))
    part, run = method(), Run.create(tmp_path / "part", {}, digits)

    class Stop(Listener):
        def epoch_ended(self, record: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(part, digits, settings, run=run, listener=Stop())
    resumed = method()
    fit(resumed, digits, settings, run=run)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor)


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler such as g\+\+"):
        Trainer(method_of("hff"), Settings(compile=True))
    monkeypatch.setenv("CXX", "missing++")
    assert "'missing++'" in str(unsupported_settings(method_of("hff"), Settings(compile=True)))
    assert unsupported_settings(method_of("hff"), Settings()) is None


def test_an_error_of_the_compiler_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no header")

    monkeypatch.setattr(compiled, "BACKEND", broken)
    method = method_of("backprop")
    with pytest.raises(
        UserError, match=r"torch cannot compile this training; remove compile\. \(.*no header"
    ):
        Trainer(method, Settings(compile=True)).step(batches(method, 1)[0])


def test_a_method_with_compiled_functions_can_be_copied() -> None:
    method = method_of("backprop")
    steps(method, Settings(**PLAIN, compile=True), 1)
    for other in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert isinstance(other.compiled, Compiled)
        assert not other.compiled._functions
