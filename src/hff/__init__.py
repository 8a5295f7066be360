"""Deep networks without backpropagation through depth: Hyperspherical Forward-Forward and its rivals."""

__version__ = "0.1.0"
