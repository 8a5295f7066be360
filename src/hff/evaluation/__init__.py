"""Evaluation of trained methods, layer by layer."""

from hff.evaluation.accuracy import layer_accuracy
from hff.evaluation.calibration import Calibration, calibrate
from hff.evaluation.early_exit import EarlyExit, ExitEvaluation, calibrate_exit, evaluate_exit
from hff.evaluation.evaluate import Evaluation, LayerResult, Split, evaluate

__all__ = [
    "Calibration",
    "EarlyExit",
    "Evaluation",
    "ExitEvaluation",
    "LayerResult",
    "Split",
    "calibrate",
    "calibrate_exit",
    "evaluate",
    "evaluate_exit",
    "layer_accuracy",
]
