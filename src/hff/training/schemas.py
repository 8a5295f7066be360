"""The names of the files of a run, and what each of them must contain."""

from math import prod
from typing import Any

from hff.files import Schema, is_count, is_duration, is_finite, is_positive, is_share, is_size, optional

CONFIG, METRICS, DATA, ENVIRONMENT, SUMMARY, COST, FAILURE, CALIBRATION, EARLY_EXIT = (
    "config.yaml",
    "metrics.jsonl",
    "data.json",
    "environment.json",
    "summary.json",
    "cost.json",
    "failure.json",
    "calibration.json",
    "early-exit.json",
)
CHECKPOINT = "checkpoint.safetensors"
LARGEST_INPUT = 2**31
"""The bound on the numbers of one network input."""


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(name, str) for name in value)


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(map(is_size, value))
        and prod(value) <= LARGEST_INPUT
    )


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_finite, value))


def _is_scales(value: Any) -> bool:
    """Whether a value is a number of at least 0 for each of some layers."""
    return isinstance(value, dict) and all(key.isdecimal() and is_duration(value[key]) for key in value)


def _is_thresholds(value: Any) -> bool:
    """Whether a value is a probability between 0 and 1 for each of some layers."""
    return _is_scales(value) and all(0 < each < 1 for each in value.values())


_number = (int, float)
_by_layer: Schema = {...: optional(is_share)}
_metrics: Schema = {
    "loss?": {...: _number},
    "validation_accuracy?": _by_layer,
    "read_out_accuracy?": optional(is_share),
    "seconds?": is_duration,
}
SCHEMAS: dict[str, Schema] = {
    DATA: {
        "name": str,
        "classes": _is_names,
        "preprocessing": {
            "mean": [is_finite],
            "std": [is_positive],
            "scale": is_positive,
            "size": _is_shape,
            "margin?": is_positive,
        },
        "brightness?": optional(_is_range),
        "fingerprint?": str,
    },
    ENVIRONMENT: dict,
    METRICS: {
        "stage": str,
        "epoch": is_duration,
        "epochs": optional(is_count),
        "learning_rate": is_finite,
        **{key.removesuffix("?"): schema for key, schema in _metrics.items()},
        "share?": is_share,
        "training_seconds?": is_duration,
        "diagnostics?": dict,
    },
    SUMMARY: {
        **_metrics,
        "method?": str,
        "data?": str,
        "epochs?": is_duration,
        "seed?": int,
        "training_samples?": is_count,
        "validation_samples?": is_count,
        "parameters?": is_count,
        "best_layer?": int,
        "diagnostics?": dict,
    },
    COST: {
        "step_seconds?": [is_duration],
        "prediction_seconds?": is_duration,
        "peak_memory?": optional(int),
    },
    FAILURE: {"reason": str},
    CALIBRATION: {
        "layers": _is_scales,
        "read_out": is_duration,
        "split": lambda value: value in ("validation", "train"),
    },
    EARLY_EXIT: {
        "threshold": _is_thresholds,
        "scales": _is_scales,
        "guarantee": {
            "epsilon": is_share,
            "delta": is_share,
            "samples": is_count,
            "lost": is_count,
            "allowed": int,
        },
    },
}
"""What the files of a run must contain. Older versions wrote fewer values, so most of them may be missing."""
EVALUATION: Schema = {
    "accuracy": is_share,
    "split?": str,
    "samples?": is_count,
    "classes?": [str],
    "top5?": optional(is_share),
    "confusion?": [[is_count]],
    "unscored?": [is_count],
    "balanced_accuracy?": is_share,
    "per_class?": [
        {"name": str, "samples": is_count, "precision": is_share, "recall": is_share, "f1": is_share}
    ],
    "layers?": [{"layer": int, "accuracy": is_share, "bits": _number}],
}
STATE: Schema = {
    "position": {
        "stage?": is_count,
        "epoch?": is_count,
        "step?": is_count,
        "records?": is_count,
        "samples?": is_count,
        "seconds?": is_duration,
        "spent?": is_duration,
    },
    "seed?": int,
    "format?": lambda value: value == 1,
}
"""What the state of a checkpoint must contain."""
