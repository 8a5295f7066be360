"""A data set as the rest of the library sees it."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from hff.batch import Batch
from hff.data.arrays import ArrayLike, raw_from_arrays
from hff.data.augmentation import Augmentation, AugmentationName
from hff.data.batches import Batches
from hff.data.description import described, warnings_of
from hff.data.examples import Examples, JoinedExamples
from hff.data.preprocessing import Preprocessing
from hff.data.raw import CARVED, GIVEN, RawData
from hff.data.splits import carve_validation
from hff.data.statistics import brightness_range, channel_statistics, fingerprint, refuse_huge_values
from hff.errors import UserError, quoted, require, require_seed


@dataclass(frozen=True)
class DataSet:
    """Examples in splits, with everything that is needed to turn them into batches."""

    name: str
    classes: tuple[str, ...]
    """The name of each class; a label is an index into it."""
    in_shape: tuple[int, ...]
    """The shape of one input: [C, H, W] or [D]."""
    preprocessing: Preprocessing
    train: Examples
    validation: Examples | None
    test: Examples | None
    augmentation: Augmentation
    """The augmentation of training images."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where the splits train, validation and test come from, such as "given"."""
    resized: str = ""
    """How the size of the images was changed, as part of a sentence. Empty if it was not."""
    notes: tuple[str, ...] = ()
    """What was found while the data was read, such as files that were skipped; one sentence each."""

    def describe(self, warnings: Sequence[str] | None = None) -> str:
        """A few lines of text about the data.

        They give the examples of each split and where they come from, the size of the inputs and how images
        were resized, the classes, and the warnings, which are those of the data unless others are given.
        """
        return described(self, self.warnings if warnings is None else warnings)

    @property
    def warnings(self) -> list[str]:
        """What to know before training, one sentence each: imbalance, classes with very few examples, no
        validation split, and data that was skipped while reading."""
        return warnings_of(self)

    @property
    def labeled(self) -> Examples:
        """The examples of all splits as one."""
        splits = [split for split in (self.train, self.validation, self.test) if split is not None]
        return splits[0] if len(splits) == 1 else JoinedExamples(splits)

    @property
    def brightness(self) -> tuple[float, float] | None:
        """The lowest and the highest mean value of a training image, from 0 to 1. None for a table."""
        return brightness_range(self.train, self.preprocessing.scale) if len(self.in_shape) == 3 else None

    @property
    def fingerprint(self) -> str:
        """A hash of the labels and of a few examples, which is the same if the data is in another place."""
        return fingerprint((self.train, self.validation, self.test))

    def with_classes(self, classes: Sequence[str]) -> Self:
        """The same examples with labels that are indices into these names.

        The names must include those of all classes of this data set.
        """
        missing = [name for name in self.classes if name not in classes]
        if missing:
            names = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise UserError(f"The data has classes that the method does not know: {names}.")
        index = torch.tensor([list(classes).index(name) for name in self.classes])
        splits = {name: getattr(self, name) for name in ("train", "validation", "test")}
        renamed = {name: split and split.with_labels(index[split.labels]) for name, split in splits.items()}
        return replace(self, classes=tuple(classes), **renamed)

    def batches(
        self, batch_size: int = 128, *, epoch: int = 0, seed: int = 0, balanced: bool = False
    ) -> Iterator[Batch]:
        """The training batches of one epoch: shuffled, augmented and normalized, for a loop of your own.

        Args:
            batch_size: the number of samples in a batch.
            epoch: the epoch; each has another order and other augmentations.
            seed: the seed that both depend on.
            balanced: draw every class equally often; samples of rare classes are repeated.
        """
        require_seed(seed)
        require(isinstance(epoch, int), f"epoch must be a whole number of type int, not {quoted(epoch)}.")
        batches = Batches(
            self.train, self.preprocessing, batch_size, (seed, 0), self.augmentation, balanced=balanced
        )
        return batches.epoch(epoch)

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        *,
        x_test: ArrayLike | None = None,
        y_test: ArrayLike | None = None,
        x_validation: ArrayLike | None = None,
        y_validation: ArrayLike | None = None,
        validation: int | float = 0.1,
        classes: Sequence[Hashable] | None = None,
        name: str = "arrays",
        seed: int = 0,
        augment: AugmentationName = "none",
    ) -> Self:
        """A data set from NumPy arrays, tensors or lists.

        Inputs are normalized with the mean and the standard deviation of the training split, per channel of
        images or per column of a table. Images hold bytes, or floats up to 1 or 255.

        Args:
            x: training inputs: a table [N, D], or images [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3
                channels.
            y: training labels [N]: integers, strings, or other values that can be sorted.
            x_test: test inputs, like x. Without them, the test split is None.
            y_test: test labels.
            x_validation: validation inputs, like x. Without them, the validation split is carved from x.
            y_validation: validation labels.
            validation: training examples to carve for validation: a count, or a share below 1; 0 for none.
            classes: the names of the classes in the order of their index. Integer labels are indices into
                it. Without it, the sorted labels of y are the classes.
            name: the name of the data set.
            seed: the seed that decides which examples are carved for validation.
            augment: the augmentation of training images.
        """
        arrays = {
            "x": x,
            "y": y,
            "x_test": x_test,
            "y_test": y_test,
            "x_validation": x_validation,
            "y_validation": y_validation,
        }
        raw = raw_from_arrays(arrays, classes)
        return cls.from_raw(name, raw, validation=validation, seed=seed, augment=augment)

    @classmethod
    def from_raw(
        cls,
        name: str,
        raw: RawData,
        *,
        validation: int | float = 0.1,
        limit: int | None = None,
        seed: int = 0,
        augment: AugmentationName = "auto",
        default_augmentation: Augmentation | None = None,
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
    ) -> Self:
        """A data set from the output of a reader.

        Args:
            name: the name of the data set.
            raw: the splits as they are stored.
            validation: as in `from_arrays`. It is ignored if the data has a validation split.
            limit: the largest number of examples to train on.
            seed: the seed that decides which examples are used for validation and within the limit.
            augment: the augmentation of training images.
            default_augmentation: the augmentation that "auto" stands for.
            mean: the published mean of each channel. Without it, mean and std are computed from the training
                split.
            std: the published standard deviation of each channel.
        """
        share = validation if raw.validation is None else 0
        train, carved = carve_validation(raw.train, share, limit, seed)
        if not mean:
            mean, std = channel_statistics(train, raw.scale)
        augmentation = Augmentation.named(augment, default_augmentation or Augmentation.none())
        if len(raw.in_shape) != 3 and augmentation != Augmentation.none():
            raise UserError(f"A table cannot be augmented by {augment!r}; choose 'none'.")
        preprocessing = Preprocessing(mean, std, raw.scale, raw.in_shape, raw.margin)
        held_out = carved if raw.validation is None else raw.validation
        for examples in (train, held_out, raw.test):
            refuse_huge_values(examples, mean, std)
        return cls(
            name=name,
            classes=raw.classes,
            in_shape=raw.in_shape,
            preprocessing=preprocessing,
            train=train,
            validation=held_out,
            test=raw.test,
            augmentation=augmentation,
            origins={"validation": CARVED if raw.validation is None else GIVEN, **raw.origins},
            resized=raw.resized,
            notes=raw.notes,
        )
