"""Evaluation of trained methods, layer by layer."""

from hff.evaluation.accuracy import layer_accuracy
from hff.evaluation.evaluate import Evaluation, LayerResult, Split, evaluate

__all__ = ["Evaluation", "LayerResult", "Split", "evaluate", "layer_accuracy"]
