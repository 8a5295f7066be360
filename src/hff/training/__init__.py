"""The loop and its record."""

from hff.training.fit import fit, pick_device
from hff.training.listener import Listener, TrainingProgress
from hff.training.run import Run
from hff.training.settings import Settings

__all__ = ["Listener", "Run", "Settings", "TrainingProgress", "fit", "pick_device"]
