"""Why a trained network predicts what it predicts: activation maps, telling images, embeddings."""

from hff.explain.answers import Answers, Reliability, answers_on, reliability
from hff.explain.feature_space import Embedding, LayerEmbedding, embedding
from hff.explain.maps import ActivationMaps, LayerMaps, activation_maps

__all__ = [
    "ActivationMaps",
    "Answers",
    "Embedding",
    "LayerEmbedding",
    "LayerMaps",
    "Reliability",
    "activation_maps",
    "answers_on",
    "embedding",
    "reliability",
]
