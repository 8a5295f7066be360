"""One training step, the loop around it, and the record of a run."""

from hff.device import pick_device
from hff.training.fit import fit
from hff.training.listener import Listener, TrainingProgress
from hff.training.run import Run
from hff.training.settings import Settings
from hff.training.trainer import Trainer

__all__ = ["Listener", "Run", "Settings", "Trainer", "TrainingProgress", "fit", "pick_device"]
