"""Early exit of every method: the first sure layer predicts, and samples leave the batch there."""

from typing import Any

import pytest
import torch
from torch import Tensor

from hff.errors import UserError
from hff.methods import Method, create_method, methods
from hff.methods.early_exit import EarlyExit
from hff.networks import Network, create_network

CLASSES = 4
REFUSE = {
    "backprop",
    "dfa",
    "dll",
    "equilibrium_prop",
    "fa",
    "ffcm",
    "predictive_coding",
    "ssdfa",
}
"""Methods with scores in the last layer only."""


def network_for(name: str) -> Network:
    table = create_network("mlp", (1, 8, 8), CLASSES, widths=(24, 20, 20))
    if methods[name].unsupported_reason(table, CLASSES) is None:
        return table
    return create_network("cnn", (1, 8, 8), CLASSES, channels=(8, 8, 12))


def created(name: str, table: Network, **options: Any) -> Method:
    """A method in evaluation mode. Heads that are zero at first get random weights, to score differently."""
    method = create_method(name, table, CLASSES, **options)
    for parameter in method.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter)
    return method.eval()


def plainly(method: Method, x: Tensor, early_exit: EarlyExit) -> tuple[list[int], list[int]]:
    """The class and the layer of each sample, one sample after the other from the scores of all layers."""
    classes, layers, top = [], [], max(method.read_out_layers)
    with torch.no_grad():
        every = dict(method.layer_scores(x))
        final = method.combine_scores(every)
    for i in range(len(x)):
        predicted = (int(final[i].argmax()), top)
        for layer in sorted((each for each in every if each < top), reverse=True):
            shares = torch.softmax(every[layer][i] * early_exit.scales.get(layer, 1.0), 0)
            threshold = early_exit.threshold_of(layer)
            if threshold is not None and float(shares.max()) >= threshold:
                predicted = (int(shares.argmax()), layer)
        classes.append(predicted[0])
        layers.append(predicted[1])
    return classes, layers


def halving(method: Method, x: Tensor) -> EarlyExit:
    """A policy by which about half of the remaining samples leave at each layer."""
    scales, thresholds, left = {}, {}, torch.ones(len(x), dtype=torch.bool)
    with torch.no_grad():
        for layer, scores in method.layer_scores(x):
            # Untrained scores are alike; a large scale separates their probabilities.
            scales[layer] = 5.0 / float(scores.std(1).mean())
            sure, _ = EarlyExit({}, scales).confidence(layer, scores)
            # Between two samples, so that rounding does not matter.
            ordered = sure[left].sort().values
            middle = len(ordered) // 2
            thresholds[layer] = float(ordered[middle - 1 : middle + 1].mean())
            left &= sure < thresholds[layer]
            if int(left.sum()) < 4:
                break
    return EarlyExit(thresholds, scales)


@pytest.mark.parametrize("name", methods)
def test_every_method_predicts_by_the_first_sure_layer_or_refuses_in_one_sentence(name: str) -> None:
    table = network_for(name)
    method = created(name, table)
    x = torch.randn(40, *table.in_shape)
    if name in REFUSE:
        with pytest.raises(UserError, match="no scores in the layers below its read-out") as error:
            method.predict(x, early_exit=0.9)
        assert method.info.title in str(error.value)
        return
    early_exit = halving(method, x)
    classes, layers = method.predict_early(x, early_exit)
    assert len(set(layers.tolist())) > 1
    assert (classes.tolist(), layers.tolist()) == plainly(method, x, early_exit)
    assert torch.equal(method.predict(x, early_exit), classes)
    one_by_one = torch.cat([method.predict(each, early_exit) for each in x.split(1)])
    assert torch.equal(one_by_one, classes)


@pytest.mark.parametrize("name", sorted(methods))
def test_without_early_exit_the_read_out_predicts(name: str) -> None:
    table = network_for(name)
    method = create_method(name, table, CLASSES)
    x = torch.randn(6, *table.in_shape)
    method.train()
    classes = method.predict(x)
    assert method.training
    assert torch.equal(classes, method.eval()(x).argmax(1))
    assert torch.equal(method.predict(x, early_exit=EarlyExit({})), classes)


def hff(read_out: Any, **options: Any) -> Method:
    table = create_network("mlp", (1, 8, 8), CLASSES, widths=(24, 20, 20))
    return create_method("hff", table, CLASSES, read_out=read_out, **options).eval()


@pytest.mark.parametrize("read_out", ["last", "mean", "best", 1])
def test_the_full_network_is_the_read_out_of_the_method(read_out: Any) -> None:
    method = hff(read_out)
    method.best_layer.fill_(1)
    x = torch.randn(60, 1, 8, 8)
    early_exit = halving(method, x)
    classes, layers = method.predict_early(x, early_exit)
    assert (classes.tolist(), layers.tolist()) == plainly(method, x, early_exit)
    assert set(layers.tolist()) == set(range(max(method.read_out_layers) + 1))


def test_only_the_remaining_samples_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    method, x = hff("last"), torch.randn(60, 1, 8, 8)
    early_exit = halving(method, x)
    _, layers = method.predict_early(x, early_exit)
    sizes: list[int] = []
    features = method.features

    def counted(layer: int, h: Tensor) -> Tensor:
        sizes.append(len(h))
        return features(layer, h)

    monkeypatch.setattr(method, "features", counted)
    method.predict_early(x, early_exit)
    assert sizes == [60, int((layers > 0).sum()), int((layers > 1).sum())]
    sizes.clear()
    # All samples are sure enough, so the first layer is the last to be computed.
    assert set(method.predict_early(x, EarlyExit(0.01))[1].tolist()) == {0}
    assert sizes == [60]


def test_layers_without_a_threshold_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    method, x = hff("last"), torch.randn(5, 1, 8, 8)
    scored: list[int] = []
    scores = method.scores
    monkeypatch.setattr(method, "scores", lambda layer, f: scored.append(layer) or scores(layer, f))
    method.predict(x, EarlyExit({1: 0.999}))
    assert scored == [1, 2]
    scored.clear()
    method.predict(x, EarlyExit({}))
    assert scored == [2]


def test_scores_that_are_not_finite_are_never_sure() -> None:
    method, x = hff("last"), torch.randn(5, 1, 8, 8)
    x[2] = torch.inf
    classes, layers = method.predict_early(x, EarlyExit(0.01))
    assert layers.tolist() == [0, 0, 2, 0, 0]
    assert classes.shape == (5,)


@pytest.mark.parametrize("threshold", [0, 1, 1.5, -0.1, "high", {0: 2.0}, float("nan")])
def test_a_threshold_that_is_not_a_probability_is_refused(threshold: Any) -> None:
    with pytest.raises(UserError, match="The threshold of early exit is a probability between 0 and 1, not"):
        hff("last").predict(torch.randn(2, 1, 8, 8), early_exit=EarlyExit(threshold))


def test_a_read_out_at_the_first_layer_leaves_nothing_to_skip() -> None:
    with pytest.raises(UserError, match="no scores in the layers below its read-out"):
        hff(0).predict(torch.randn(2, 1, 8, 8), early_exit=0.5)


@pytest.mark.parametrize(
    ("name", "options"), [("ff", {"inference": "head"}), ("local_errors", {"loss": "sim"})]
)
def test_options_that_leave_one_score_are_refused(name: str, options: dict[str, Any]) -> None:
    method = create_method(name, network_for(name), CLASSES, **options)
    with pytest.raises(UserError, match="no scores in the layers below its read-out"):
        method.predict(torch.randn(2, 1, 8, 8), early_exit=0.5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("symba", {"inject": "every_layer"}),
        ("hff", {"loss_on": "pre"}),
        ("hff", {"scale_input": False}),
        ("cwconv", {"predictor": "softmax"}),
    ],
)
def test_options_with_other_inputs_of_the_next_layer(name: str, options: dict[str, Any]) -> None:
    table = network_for(name)
    method = created(name, table, **options)
    x = torch.randn(40, *table.in_shape)
    early_exit = halving(method, x)
    classes, layers = method.predict_early(x, early_exit)
    assert (classes.tolist(), layers.tolist()) == plainly(method, x, early_exit)


def test_a_large_batch_of_a_method_that_tries_every_label_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    method = create_method("ff", network_for("ff"), CLASSES).eval()
    x = torch.randn(40, 1, 8, 8)
    early_exit = halving(method, x)
    whole = method.predict_early(x, early_exit)
    monkeypatch.setattr("hff.methods.families.pairs.NUMBERS_AT_ONCE", 7 * CLASSES * 24)
    parts = method.predict_early(x, early_exit)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
