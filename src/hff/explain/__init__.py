"""Why a trained network predicts what it predicts: activation maps, telling images, embeddings."""

from hff.explain.maps import ActivationMaps, LayerMaps, activation_maps

__all__ = ["ActivationMaps", "LayerMaps", "activation_maps"]
