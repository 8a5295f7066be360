"""A data set as the rest of the library sees it."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from hff.batch import Batch
from hff.data.arrays import ArrayLike, raw_from_arrays
from hff.data.augmentation import Augmentation, AugmentationName
from hff.data.batches import Batches
from hff.data.description import described, warnings_of
from hff.data.examples import Examples
from hff.data.preprocessing import Preprocessing
from hff.data.raw import CARVED, GIVEN, RawData
from hff.data.splits import carve_validation
from hff.data.statistics import channel_statistics
from hff.errors import UserError


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

    def describe(self) -> str:
        """A few lines of text about the data.

        They give the examples of each split and where they come from, the size of the inputs and how images
        were resized, the classes, and the warnings.
        """
        return described(self)

    @property
    def warnings(self) -> list[str]:
        """What to know before training, one sentence each: imbalance, classes with very few examples, no
        validation split, and data that was skipped while reading."""
        return warnings_of(self)

    def batches(self, batch_size: int = 128, *, epoch: int = 0, seed: int = 0) -> Iterator[Batch]:
        """The training batches of one epoch: shuffled, augmented and normalized, for a loop of your own.

        Args:
            batch_size: the number of samples in a batch.
            epoch: the epoch; each has another order and other augmentations.
            seed: the seed that both depend on.
        """
        batches = Batches(self.train, self.preprocessing, batch_size, (seed, 0), self.augmentation)
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
        return cls(
            name=name,
            classes=raw.classes,
            in_shape=raw.in_shape,
            preprocessing=Preprocessing(mean, std, raw.scale, raw.in_shape, raw.margin),
            train=train,
            validation=carved if raw.validation is None else raw.validation,
            test=raw.test,
            augmentation=augmentation,
            origins={"validation": CARVED if raw.validation is None else GIVEN, **raw.origins},
            resized=raw.resized,
            notes=raw.notes,
        )
