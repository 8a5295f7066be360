"""How well a trained method does, layer by layer."""

from hff.evaluation.accuracy import layer_accuracy
from hff.evaluation.evaluate import Evaluation, LayerResult, evaluate

__all__ = ["Evaluation", "LayerResult", "evaluate", "layer_accuracy"]
