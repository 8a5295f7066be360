"""Probabilities from scores."""

import json
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from hff.data import Batches, DataSet
from hff.evaluation import Calibration, calibrate, evaluate
from hff.evaluation.accuracy import evaluation_mode
from hff.methods import Method, create_method
from hff.networks import create_network
from hff.training import Settings, fit


@pytest.fixture(scope="module")
def method(digits: DataSet) -> Method:
    network = create_network("mlp", digits.in_shape, 10, widths=(48, 32))
    trained = create_method("hff", network, 10, read_out="mean")
    fit(trained, digits, Settings(epochs=6, batch_size=64))
    return trained


def scores_of(
    method: Method, data: DataSet, split: str
) -> tuple[dict[int | None, torch.Tensor], torch.Tensor]:
    """The scores of each layer and, under None, the final ones; and the labels."""
    examples = getattr(data, split)
    (batch,) = Batches.in_order(examples, data.preprocessing, len(examples)).epoch(0)
    with evaluation_mode(method):
        layers = dict(method.layer_scores(batch.x))
        return {**layers, None: method.combine_scores(layers)}, batch.y


def test_no_other_scale_fits_the_validation_split_better(method: Method, digits: DataSet) -> None:
    calibration = calibrate(method, digits)
    scores, labels = scores_of(method, digits, "validation")
    assert calibration.split == "validation"
    assert set(calibration.layers) == {0, 1}
    for layer, each in scores.items():
        scale = calibration.read_out if layer is None else calibration.layers[layer]
        losses = [float(cross_entropy(factor * scale * each, labels)) for factor in (1.0, 0.5, 2.0)]
        assert losses[0] < min(losses[1:])
        shares = calibration.probabilities(each, layer)
        torch.testing.assert_close(shares, torch.softmax(scale * each.double(), 1))
        torch.testing.assert_close(shares.sum(1), torch.ones(len(labels), dtype=torch.float64))


def test_the_stated_probability_is_the_share_of_correct_predictions(method: Method, digits: DataSet) -> None:
    calibration = calibrate(method, digits)
    scores, labels = scores_of(method, digits, "test")
    for layer, each in scores.items():
        confidence, predicted = calibration.probabilities(each, layer).max(1)
        accuracy = (predicted == labels).double().mean()
        assert abs(confidence.mean() - accuracy) < 0.05


def test_without_validation_the_training_split_is_used(method: Method, digits: DataSet) -> None:
    assert calibrate(method, replace(digits, validation=None)).split == "train"


def test_a_calibration_survives_json_and_is_used_by_evaluate(method: Method, digits: DataSet) -> None:
    calibration = calibrate(method, digits)
    restored = Calibration.from_json(json.loads(json.dumps(calibration.to_json())))
    assert restored == calibration
    assert evaluate(method, digits, calibration=restored) == evaluate(method, digits)
