"""Why a training may disappoint, known before it starts."""

from hff.data import DataSet
from hff.methods import Method
from hff.networks import Block
from hff.training.settings import Settings

FEW_STEPS = 8
"""An epoch with fewer training steps gets a warning."""

ENOUGH_STEPS = 10
"""The number of training steps per epoch that a batch size is chosen for."""

BATCH_SIZES = (128, 64, 32, 16, 8)
"""The sizes to choose from."""


def suitable_batch_size(samples: int) -> int:
    """The largest batch size with enough steps per epoch for this number of training examples."""
    return next((size for size in BATCH_SIZES if _steps(samples, size) >= ENOUGH_STEPS), BATCH_SIZES[-1])


def _steps(samples: int, batch_size: int) -> int:
    """The number of training steps per epoch."""
    return -(-samples // batch_size)


def warnings_before(method: Method, data: DataSet, settings: Settings) -> list[str]:
    """What to know before training the method on the data, one sentence each."""
    return _network_warnings(method, data) + _batch_warnings(data, settings)


def _network_warnings(method: Method, data: DataSet) -> list[str]:
    """Why the network may not suit the data, one sentence each."""
    first = method.blocks[0]
    is_color = len(data.in_shape) == 3 and data.in_shape[0] == 3
    if not is_color or not isinstance(first, Block) or first.row.kind != "linear":
        return []
    return [
        "The first layer is linear, so it does not see which pixels are neighbors; a convolutional network "
        "usually learns photographs much better (--network cnn)."
    ]


def _batch_warnings(data: DataSet, settings: Settings) -> list[str]:
    """A sentence if the batches are so large that an epoch has only a few training steps."""
    samples, size = len(data.train), settings.batch_size
    smaller = suitable_batch_size(samples)
    if samples >= FEW_STEPS * size or size <= smaller or settings.seconds is not None:
        return []
    steps = _steps(samples, size) * settings.epochs
    return [
        f"The training takes only {steps} steps, because batches of {size} are "
        f"large for {samples} examples; use smaller ones (--batch-size {smaller}) or more epochs."
    ]
