"""The user's own arrays in an .npz file."""

from dataclasses import replace

from hff.data.arrays import SPLITS, raw_from_arrays, scale_of
from hff.data.examples import TensorExamples
from hff.data.info import ReadRequest
from hff.data.raw import CARVED, RawData
from hff.data.readers.npz_file import read_arrays
from hff.data.splits import carve_test
from hff.errors import UserError


def read_npz(request: ReadRequest) -> RawData:
    """The arrays x and y, and optionally x_test, y_test, x_validation, y_validation and classes.

    They are those of `DataSet.from_arrays`. Without x_test, a fifth of the examples is used for testing, the
    same fifth for every seed.
    """
    path = request.location
    arrays = read_arrays(path, [*(f"{kind}{split}" for split in SPLITS for kind in "xy"), "classes"])
    for name in ("x", "y"):
        if name not in arrays:
            raise UserError(
                f"{path} does not hold an array {name!r}; save it with numpy.savez(path, x=x, y=y)."
            )
    names = arrays.pop("classes", None)
    classes = None if names is None else [_word(name) for name in names.ravel().tolist()]
    raw = raw_from_arrays(arrays, classes, f" in {path}", request.least_classes)
    if raw.test is not None:
        return raw
    kept, taken = carve_test(raw.train.labels, "npz")
    train, test = raw.train.subset(kept), raw.train.subset(taken)
    scale = scale_of(train.x) if isinstance(train, TensorExamples) else raw.scale
    return replace(raw, train=train, test=test, scale=scale, origins={"test": CARVED})


def _word(name: object) -> str:
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)
