"""Networks as tables: each row describes one layer and builds one block. Independent of learning rules.

Importing the package registers all tables.
"""

from hff.networks import direct_feedback, energy, hebbian, residual, rivals, tables
from hff.networks.affine import (
    ACTIVATIONS,
    WITHOUT_GRADIENT,
    Activation,
    AffineBlock,
    AffineRow,
    Norm,
    Place,
    Pool,
)
from hff.networks.block import Block, Row, Shape
from hff.networks.network import Network, Table, create_network, networks, register
from hff.networks.residual import ResidualBlock, ResidualRow

__all__ = [
    "ACTIVATIONS",
    "WITHOUT_GRADIENT",
    "Activation",
    "AffineBlock",
    "AffineRow",
    "Block",
    "Network",
    "Norm",
    "Place",
    "Pool",
    "ResidualBlock",
    "ResidualRow",
    "Row",
    "Shape",
    "Table",
    "create_network",
    "direct_feedback",
    "energy",
    "hebbian",
    "networks",
    "register",
    "residual",
    "rivals",
    "tables",
]
