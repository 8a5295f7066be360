"""Arrays in memory as examples: checks, layout of images, and labels of any type."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hff.data.examples import TensorExamples
from hff.data.raw import RawData
from hff.errors import UserError, quoted

Array = npt.NDArray[Any]
ArrayLike = Array | Tensor | Sequence[Any]

SPLITS = ("", "_test", "_validation")
"""The endings of the names of arrays: x and y are the training split."""


def raw_from_arrays(
    arrays: Mapping[str, Any],
    classes: Sequence[Hashable] | None = None,
    where: str = "",
    least_classes: int = 2,
) -> RawData:
    """The splits in arrays.

    Args:
        arrays: x and y, and optionally x_test, y_test, x_validation and y_validation; None counts as missing.
            Each x is a table [N, D] or images [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels.
            Each y holds labels [N].
        classes: the names of the classes in the order of their index. Integer labels are indices into it.
            Without it, the sorted labels of y are the classes.
        where: appended to the name of an array in messages, such as " in data.npz".
        least_classes: the smallest number of classes that y may hold.
    """
    given = {name: array for name, array in arrays.items() if array is not None}
    labels = {}
    for split in SPLITS:
        if (f"x{split}" in given) != (f"y{split}" in given):
            missing = f"{'y' if f'x{split}' in given else 'x'}{split}"
            raise UserError(f"The array {missing}{where} is missing; give both x{split} and y{split}.")
        if f"y{split}" in given:
            labels[split] = _labels(given[f"y{split}"], f"y{split}{where}")
    if not labels.get(""):
        raise UserError(f"y{where} is empty; give at least two examples.")
    index, names = _classes(labels[""], classes, f"y{where}", least_classes)
    splits: dict[str, TensorExamples] = {}
    for split, own in labels.items():
        name = f"{split}{where}"
        x = _values(given[f"x{split}"], f"x{name}")
        if len(x) != len(own):
            raise UserError(
                f"x{name} holds {len(x)} rows but y{split} {len(own)} labels; give one label to each row."
            )
        if splits:
            x = _like(splits[""].x, x, f"x{name}")
        splits[split] = TensorExamples(x, _encoded(own, index, f"y{name}"))
    train = splits[""]
    return RawData(
        train,
        splits.get("_test"),
        names,
        in_shape=tuple(train.x.shape[1:]),
        scale=scale_of(train.x),
        validation=splits.get("_validation"),
    )


def scale_of(x: Tensor) -> float:
    """255 for images [N, C, H, W] with values up to 255, otherwise 1."""
    if x.ndim != 4:
        return 1.0
    return 255.0 if x.dtype is torch.uint8 or (x.min() >= 0 and 1 < x.max() <= 255) else 1.0


def _labels(y: ArrayLike, name: str) -> list[Hashable]:
    """One plain Python value per row; truth values and whole floats become integers."""
    if isinstance(y, Sequence) and not isinstance(y, str | bytes):
        # NumPy would turn a tuple into a row of labels, and numbers next to words into words.
        values = list(y)
    else:
        array = np.atleast_1d(_array(y, name))
        if array.size != len(array):
            raise UserError(f"{name} must hold one label per row, not {array.dtype} {list(array.shape)}.")
        values = array.ravel().tolist()
    # A list or an array of objects, as pandas makes them, may hold NumPy's own scalars.
    values = [value.item() if isinstance(value, np.generic | Tensor) else value for value in values]
    missing = [i for i, value in enumerate(values) if _is_missing(value)]
    if missing and len(missing) < len(values) and not _all_numbers(values):
        raise UserError(
            f"{name} holds {len(missing)} missing labels, the first in row {missing[0]}; remove these rows."
        )
    if _all_numbers(values):
        wrong = next((value for value in values if value != value or value % 1), None)
        if wrong is not None:
            raise UserError(f"{name} holds {wrong}; labels must be integers or words, not fractions.")
        return [int(value) for value in values]
    if not all(isinstance(value, Hashable) for value in values):
        raise UserError(f"{name} must hold one label per row, such as an integer or a word.")
    return [
        value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for value in values
    ]


def _all_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, bool | int | float) for value in values)


def _is_missing(value: Any) -> bool:
    """Whether a label is None, NaN, or the missing value of pandas, which is not equal to itself either."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _classes(
    labels: list[Hashable], classes: Sequence[Hashable] | None, name: str, least: int
) -> tuple[dict[Hashable, int], tuple[str, ...]]:
    """The index of each label, and the names of the classes."""
    distinct = set(labels)
    if len(distinct) < least:
        raise UserError(f"{name} holds one class only ({quoted(labels[0])}); at least two are needed.")
    if classes is None:
        try:
            classes = sorted(distinct)  # type: ignore[type-var]
        except TypeError:
            raise UserError(
                f"{name} holds labels that cannot be sorted; give their order as classes."
            ) from None
    elif all(isinstance(label, int) for label in labels) and all(isinstance(one, str) for one in classes):
        return {i: i for i in range(len(classes))}, tuple(map(str, classes))
    if len(set(classes)) != len(classes):
        raise UserError(f"classes must name each class once, not {quoted(list(classes))}.")
    return {label: i for i, label in enumerate(classes)}, tuple(map(str, classes))


def _encoded(labels: list[Hashable], index: dict[Hashable, int], name: str) -> Tensor:
    """The class of each label, int64 [N]."""
    wrong = next((label for label in labels if label not in index), None)
    if wrong is not None:
        known = ", ".join(map(quoted, list(index)[:10])) + (", ..." if len(index) > 10 else "")
        raise UserError(f"{name} holds the label {quoted(wrong)}, which is not one of the classes ({known}).")
    return torch.tensor([index[label] for label in labels], dtype=torch.int64)


def _array(values: ArrayLike, name: str) -> Array:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        # NumPy does not have this type.
        return (values.float() if values.dtype is torch.bfloat16 else values).numpy()
    try:
        return np.asarray(values)
    except ValueError:
        raise UserError(
            f"The rows of {name} have different lengths; give all of them the same shape."
        ) from None


def _values(x: ArrayLike, name: str) -> Tensor:
    """Bytes or floats [N, D] or [N, C, H, W]."""
    x = _array(x, name)
    if x.dtype == object and all(isinstance(value, bool | int | float | np.number) for value in x.flat):
        # A table of pandas with columns of several types is an array of objects.
        x = x.astype(np.float64)
    if x.dtype.kind not in "iubf" or x.ndim not in (2, 3, 4) or x.size == 0:
        raise UserError(
            f"{name} must be a table [N, D] or images [N, H, W], [N, C, H, W] or [N, H, W, C] of numbers, "
            f"not {x.dtype} {list(x.shape)}."
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in (1, 3):
        if x.shape[3] not in (1, 3):
            raise UserError(f"{name} must have 1 or 3 channels, not the shape {list(x.shape)}.")
        x = x.transpose(0, 3, 1, 2)
    wrong = int((~np.isfinite(x)).sum()) if x.dtype.kind == "f" else 0
    if wrong:
        raise UserError(f"{name} holds {wrong} values that are NaN or infinite; replace them.")
    if x.ndim == 4 and x.dtype.kind in "iu" and x.min() >= 0 and x.max() <= 255:
        return _tensor(x, np.uint8)
    # Wide integers and doubles stay exact until they are centered: a date in seconds does not fit float32.
    wide = x.ndim == 2 and x.dtype.itemsize > 4
    values = _tensor(x, np.float64 if wide else np.float32)
    if not bool(torch.isfinite(values).all()):
        wrong = int((~torch.isfinite(values)).sum())
        raise UserError(f"{name} holds {wrong} values too large for {str(values.dtype)[6:]}; rescale them.")
    return values


def _tensor(x: Array, dtype: npt.DTypeLike) -> Tensor:
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(x, dtype=dtype)
    # A tensor cannot be read-only.
    return torch.from_numpy(x if x.flags.writeable else x.copy())


def _like(train: Tensor, x: Tensor, name: str) -> Tensor:
    """The values of another split, stored in the same way as those of the training split."""
    if train.is_floating_point() and not x.is_floating_point():
        x = x.to(train.dtype)
    if (x.shape[1:], x.is_floating_point()) != (train.shape[1:], train.is_floating_point()):
        raise UserError(f"Each row of {name} must be {_form(train)} as in x, not {_form(x)}.")
    return x


def _form(x: Tensor) -> str:
    return f"{'floats' if x.is_floating_point() else 'bytes'} {list(x.shape[1:])}"
