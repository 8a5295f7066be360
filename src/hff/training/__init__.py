"""The loop and its record."""

from hff.training.fit import fit, pick_device
from hff.training.listener import Listener, Progress
from hff.training.run import Run
from hff.training.settings import Settings

__all__ = ["Listener", "Progress", "Run", "Settings", "fit", "pick_device"]
