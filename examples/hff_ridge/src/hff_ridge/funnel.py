"""Funnel: linear layers that halve in width."""

from hff.networks import AffineRow


def funnel(classes: int, *, first: int = 128, depth: int = 3) -> list[AffineRow]:
    """Linear layers, each half as wide as the one before.

    Args:
        first: units of the first layer.
        depth: number of layers.
    """
    return [AffineRow("linear", max(classes, first // 2**layer)) for layer in range(depth)]
