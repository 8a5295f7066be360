"""A data set as it is read, and as the rest of the library sees it."""

from dataclasses import dataclass

from hff.data.augmentation import Augmentation
from hff.data.examples import Examples
from hff.data.preprocessing import Preprocessing


@dataclass(frozen=True)
class RawData:
    """What a reader found: no validation split is carved yet, and nothing is normalised."""

    train: Examples
    test: Examples | None
    classes: tuple[str, ...]
    in_shape: tuple[int, ...]
    """The shape of one input of a network, which stored images may exceed by the margin."""
    scale: float = 255.0
    margin: float = 1.0


@dataclass(frozen=True)
class DataSet:
    """Examples in splits, with all that is needed to turn them into batches."""

    name: str
    classes: tuple[str, ...]
    """The name of each class; a label is an index into it."""
    in_shape: tuple[int, ...]
    """The shape of one input: [C, H, W] or [D]."""
    preprocessing: Preprocessing
    train: Examples
    validation: Examples | None
    """Carved from the training split by seed."""
    test: Examples | None
    augmentation: Augmentation
    """How training images are varied."""
