"""Evaluation of trained methods, layer by layer."""

from hff.evaluation.accuracy import layer_accuracy
from hff.evaluation.calibration import Calibration, calibrate
from hff.evaluation.evaluate import Evaluation, LayerResult, Split, evaluate

__all__ = ["Calibration", "Evaluation", "LayerResult", "Split", "calibrate", "evaluate", "layer_accuracy"]
