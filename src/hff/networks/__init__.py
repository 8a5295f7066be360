"""Networks as tables: one `Row` a layer, one `Block` built from each row; no learning rule is known here.

Importing the package registers all tables.
"""

from hff.networks import direct_feedback, energy, hebbian, rivals, tables
from hff.networks.block import ACTIVATIONS, WITHOUT_GRADIENT, Activation, Block, Norm, Place, Pool, Row, Shape
from hff.networks.network import Network, Table, create_network, networks, register

__all__ = [
    "ACTIVATIONS",
    "WITHOUT_GRADIENT",
    "Activation",
    "Block",
    "Network",
    "Norm",
    "Place",
    "Pool",
    "Row",
    "Shape",
    "Table",
    "create_network",
    "direct_feedback",
    "energy",
    "hebbian",
    "networks",
    "register",
    "rivals",
    "tables",
]
