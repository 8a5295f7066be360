"""The output of a reader."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hff.data.examples import Examples

GIVEN = "given"

CARVED = "carved from the training split"


@dataclass(frozen=True)
class RawData:
    """The splits of a data set as they are stored, not normalized yet."""

    train: Examples
    test: Examples | None
    classes: tuple[str, ...]
    """The name of each class; a label is an index into it."""
    in_shape: tuple[int, ...]
    """The shape of one network input, [C, H, W] or [D]. Stored images may be larger by the margin."""
    scale: float = 255.0
    """The largest stored value: 255 for images in bytes, 1 for tables."""
    margin: float = 1.0
    """The size of a stored image relative to `in_shape`."""
    validation: Examples | None = None
    """None if the validation split is to be carved from the training split."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where the splits train, validation and test come from, such as `GIVEN` or `CARVED`."""
    resized: str = ""
    """How the size of the images was changed, as part of a sentence. Empty if it was not."""
    notes: tuple[str, ...] = ()
    """What the user should know, such as files that were skipped; one sentence each."""
