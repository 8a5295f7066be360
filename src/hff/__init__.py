"""Deep networks without backpropagation through depth: Hyperspherical Forward-Forward and its rivals."""

TYPE_CHECKING = False  # Importing `typing` takes longer than everything else here.
if TYPE_CHECKING:
    from typing import Any

    from hff import explain, functional, methods, modules, networks, report
    from hff.batch import Batch
    from hff.bench.early_exit import early_exit_report
    from hff.data import DataSet, Examples, datasets, load_data
    from hff.errors import UserError
    from hff.evaluation.calibration import Calibration, calibrate
    from hff.evaluation.early_exit import EarlyExit, calibrate_exit, evaluate_exit
    from hff.evaluation.evaluate import Evaluation, evaluate
    from hff.experiment import Experiment
    from hff.methods import Method, create_method
    from hff.methods.backprop import Backprop
    from hff.methods.hff import HFF
    from hff.networks import Network, create_network
    from hff.prediction import Prediction, predict
    from hff.trained import evaluate_run, load_method
    from hff.training import Listener, Run, Settings, Trainer
    from hff.training.fit import fit

__version__ = "0.1.0"

__all__ = [
    "HFF",
    "Backprop",
    "Batch",
    "Calibration",
    "DataSet",
    "EarlyExit",
    "Evaluation",
    "Examples",
    "Experiment",
    "Listener",
    "Method",
    "Network",
    "Prediction",
    "Run",
    "Settings",
    "Trainer",
    "UserError",
    "calibrate",
    "calibrate_exit",
    "create_method",
    "create_network",
    "datasets",
    "early_exit_report",
    "evaluate",
    "evaluate_exit",
    "evaluate_run",
    "explain",
    "fit",
    "functional",
    "load_data",
    "load_method",
    "methods",
    "modules",
    "networks",
    "predict",
    "report",
]

_HOMES = {
    "hff.batch": ("Batch",),
    "hff.bench.early_exit": ("early_exit_report",),
    "hff.data": ("DataSet", "Examples", "datasets", "load_data"),
    "hff.errors": ("UserError",),
    "hff.evaluation": (
        "Calibration",
        "EarlyExit",
        "Evaluation",
        "calibrate",
        "calibrate_exit",
        "evaluate",
        "evaluate_exit",
    ),
    "hff.experiment": ("Experiment",),
    "hff.methods": ("Method", "create_method"),
    "hff.methods.backprop": ("Backprop",),
    "hff.methods.hff": ("HFF",),
    "hff.networks": ("Network", "create_network"),
    "hff.prediction": ("Prediction", "predict"),
    "hff.trained": ("evaluate_run", "load_method"),
    "hff.training": ("Listener", "Run", "Settings", "Trainer", "fit"),
}


def __getattr__(name: str) -> "Any":
    """Imports a public name when it is first asked for, so that `import hff` takes no time."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    if name in __all__:
        return import_module(f"hff.{name}")
    raise AttributeError(f"module 'hff' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
