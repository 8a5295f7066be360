"""`evaluate`: accuracy, information bound, top 5 and confusion matrix."""

import math
from dataclasses import replace

import pytest
import torch

from hff.data import Batches, DataSet
from hff.errors import UserError
from hff.evaluation import evaluate, layer_accuracy
from hff.functional import fit_scale, information_bound
from hff.methods import Method, create_method
from hff.networks import create_network
from hff.training import Settings, fit


@pytest.fixture(scope="module")
def method(digits: DataSet) -> Method:
    untrained = create_method(
        "hff", create_network("mlp", digits.in_shape, 10, widths=(32, 24)), 10, read_out=0
    )
    fit(untrained, digits, Settings(epochs=6, batch_size=32), device="cpu")
    return untrained


def scores_of(method: Method, data: DataSet, layer: int, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    examples = getattr(data, split)
    (batch,) = Batches.in_order(examples, data.preprocessing, len(examples)).epoch(0)
    with torch.no_grad():
        return dict(method.layer_scores(batch.x))[layer], batch.y


def test_accuracies_agree_with_layer_accuracy(method: Method, digits: DataSet) -> None:
    result = evaluate(method, digits, batch_size=100)
    assert digits.test is not None
    batches = Batches.in_order(digits.test, digits.preprocessing, 77)
    layers = {r.layer: r.accuracy for r in result.layers}
    assert (layers, result.accuracy) == layer_accuracy(method, batches.epoch(0), "cpu")
    assert result.accuracy == result.layers[0].accuracy != result.layers[1].accuracy
    assert result.top5 == result.layers[0].top5
    assert (result.split, result.samples, result.classes) == ("test", 360, digits.classes)


def test_bits_are_the_information_bound_with_the_scale_fitted_on_validation(
    method: Method, digits: DataSet
) -> None:
    result = evaluate(method, digits, batch_size=100)
    for layer in result.layers:
        scores, labels = scores_of(method, digits, layer.layer, "validation")
        scale = fit_scale(scores, labels, doubt=1 / (len(labels) + 1))
        assert layer.scale == pytest.approx(scale)
        bound = information_bound(*scores_of(method, digits, layer.layer, "test"), scale)
        assert layer.bits == pytest.approx(float(bound), abs=1e-5)
        assert 0 < layer.bits < 3.33


def test_top5_counts_the_five_highest(method: Method, digits: DataSet) -> None:
    scores, labels = scores_of(method, digits, 1, "test")
    higher = (scores > scores.gather(1, labels[:, None])).sum(1)
    expected = (higher < 5).float().mean().item()
    assert evaluate(method, digits).layers[1].top5 == pytest.approx(expected)


def test_the_confusion_matrix_counts_true_and_predicted_classes(method: Method, digits: DataSet) -> None:
    result = evaluate(method, digits)
    assert digits.test is not None
    matrix = torch.tensor(result.confusion)
    assert torch.equal(matrix.sum(1), torch.bincount(digits.test.labels))
    assert matrix.trace().item() == pytest.approx(result.accuracy * result.samples)
    scores, labels = scores_of(method, digits, 0, "test")
    assert matrix[3, 8] == int(((labels == 3) & (scores.argmax(1) == 8)).sum())
    true, predicted, amount = result.most_confused(1)[0]
    off_diagonal = matrix - torch.diag(matrix.diagonal())
    assert amount == off_diagonal.max() == matrix[int(true), int(predicted)]


def test_the_scale_is_fitted_on_the_training_split_without_a_validation_split(
    method: Method, digits: DataSet
) -> None:
    usual, without = evaluate(method, digits), evaluate(method, replace(digits, validation=None))
    assert (usual.scale_from, without.scale_from) == ("validation", "train")
    assert evaluate(method, digits, "validation").layers[0].scale == usual.layers[0].scale
    assert without.layers[0].scale != usual.layers[0].scale
    assert without.layers[0].bits > 0


def test_the_bound_is_finite_with_few_validation_samples_that_are_all_correct(
    method: Method, digits: DataSet
) -> None:
    assert digits.validation is not None
    scores, labels = scores_of(method, digits, 0, "validation")
    correct = torch.nonzero(scores.argmax(1) == labels).flatten()[:3]
    result = evaluate(method, replace(digits, validation=digits.validation.subset(correct)))
    assert result.layers[0].bits > -1


def test_top5_is_none_with_five_classes_or_fewer(digits: DataSet) -> None:
    assert digits.test is not None
    assert digits.validation is not None
    few, held_out = (
        each.subset(torch.nonzero(each.labels < 4).flatten()) for each in (digits.test, digits.validation)
    )
    data = replace(digits, classes=digits.classes[:4], test=few, validation=held_out)
    method = create_method("hff", create_network("mlp", data.in_shape, 4, widths=(8,)), 4)
    result = evaluate(method, data)
    assert result.top5 is None
    assert result.layers[0].top5 is None


def test_a_missing_or_unknown_split_is_refused(method: Method, digits: DataSet) -> None:
    with pytest.raises(UserError, match="'digits' has no test split"):
        evaluate(method, replace(digits, test=None))
    with pytest.raises(UserError, match="Unknown split 'tset'; did you mean 'test'"):
        evaluate(method, digits, "tset")  # type: ignore[arg-type]


def table(outliers: int) -> DataSet:
    """Three classes; the first test samples have a huge value."""
    y = torch.arange(300) % 3
    x = torch.randn(300, 6, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(6)[y]
    test = x[200:].clone()
    test[:outliers, 2] = 1e38
    return DataSet.from_arrays(x[:200], y[:200], x_test=test, y_test=y[200:])


@pytest.mark.parametrize("name", ["sff", "softhebb", "tff"])
def test_samples_whose_scores_are_not_finite_count_as_wrong_with_a_warning(name: str) -> None:
    usual, data = table(0), table(4)
    trained = create_method(name, create_network("mlp", (6,), 3, widths=(16, 8)), 3)
    fit(trained, usual, Settings(epochs=2), device="cpu")
    expected = evaluate(trained, usual)
    with pytest.warns(
        UserWarning, match=r"of layer 0 are not finite for 4 of 100 test samples, which count as"
    ):
        result = evaluate(trained, data)
    assert result.unscored == (1, 1, 2)
    assert sum(map(sum, result.confusion)) == 96
    assert [each.samples for each in result.per_class] == [each.samples for each in expected.per_class]
    assert 0 <= expected.accuracy - result.accuracy <= 0.04
    assert all(math.isfinite(layer.bits) for layer in result.layers)


def test_outliers_in_the_split_that_the_scales_are_fitted_on_are_left_out() -> None:
    usual, data = table(0), table(4)
    untrained = create_method("sff", create_network("mlp", (6,), 3, widths=(16,)), 3)
    result = evaluate(untrained, replace(data, validation=data.test, test=usual.test))
    assert math.isfinite(result.layers[0].scale)
    assert result.unscored == ()


def test_scores_that_are_not_finite_are_never_right_in_layer_accuracy() -> None:
    data = table(100)
    untrained = create_method("sff", create_network("mlp", (6,), 3, widths=(16,)), 3)
    assert data.test is not None
    batches = Batches.in_order(data.test, data.preprocessing, 50)
    assert layer_accuracy(untrained, batches.epoch(0), "cpu") == ({0: 0.0}, 0.0)
