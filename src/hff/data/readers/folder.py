"""Image folders with one folder per class: the user's own, and ImageNet."""

from collections.abc import Iterable
from typing import Literal, TypeVar

import torch

from hff.data.examples import Examples
from hff.data.info import ReadRequest
from hff.data.raw import CARVED, GIVEN, RawData
from hff.data.readers.folder_layout import Listed, class_names, find_layout, listed
from hff.data.readers.image_files import ImageFileExamples
from hff.data.readers.images import BadImage, ImageForms, forms_of
from hff.data.splits import carve_test
from hff.errors import UserError

IN_MEMORY = 10**9
"""Images that need fewer bytes than this are decoded once; others are decoded for every batch."""

DEFAULT_SIZE = 64
"""The default height and width of images that are large or have different sizes."""

KEPT_SIZE = 96
"""Images that all have the same size keep it up to this height and width."""

NAMED = 10
"""The number of bad images that a message names."""

Kind = TypeVar("Kind", Listed, ImageFileExamples)


def read_folder(request: ReadRequest) -> RawData:
    """The user's images: path/CLASS/*, or path/train/CLASS/* with optional folders of the other splits.

    A folder val, valid or validation is the validation split, and a folder test is the test split. Without a
    test folder, a fifth of the training images is used for testing, the same fifth for every seed; this is
    so even if there is a validation folder. Images may be in folders inside the class folders. A validation
    folder may have a file val_annotations.txt instead of class folders, as in Tiny ImageNet. A test folder
    of images without classes is ignored with a warning.
    """
    path, size = request.location, request.size
    if not path.is_dir():
        raise UserError(
            f"There is no folder {path}; give a folder that holds one folder of images per class."
        )
    layout = find_layout(path, request.least_classes)
    splits = {"train": layout.train, "validation": layout.validation, "test": layout.test}
    found = {name: split for name, split in splits.items() if split is not None}
    forms = forms_of(file for split in found.values() for file in split.files)
    found = {name: _without(split, forms.bad) for name, split in found.items()}
    common = forms.common
    shape: tuple[int, int, int]
    if request.in_shape is not None and len(request.in_shape) == 3:
        shape = request.in_shape
    elif size is None and common is not None and max(common) <= KEPT_SIZE:
        shape = (forms.channels, *common)
    else:
        shape = (forms.channels, size or DEFAULT_SIZE, size or DEFAULT_SIZE)
    lazy = {name: ImageFileExamples(*split, shape) for name, split in found.items()}
    in_memory = sum(map(len, lazy.values())) * shape[0] * shape[1] * shape[2] <= IN_MEMORY
    examples, bad = _readable(lazy, in_memory, request.bad_images)
    notes = layout.notes + _settled(forms.bad + bad, request.bad_images)
    _require_all(examples, layout.classes)
    train, test = examples["train"], examples.get("test")
    if test is None:
        kept, taken = carve_test(train.labels, "folder")
        train, test = train.subset(kept), train.subset(taken)
    return RawData(
        train,
        test,
        layout.classes,
        shape,
        validation=examples.get("validation"),
        origins=dict.fromkeys(examples, GIVEN) | ({} if "test" in examples else {"test": CARVED}),
        resized=_resizing(forms, shape),
        notes=notes,
    )


def read_imagenet(request: ReadRequest) -> RawData:
    """ImageNet from path/train/CLASS/* and path/val/CLASS/*. Its validation images are the test split.

    As for AlexNet, the shorter side is scaled to 256 (for windows of 224) and the center is kept. Training
    uses a random window of it, evaluation the window in the middle.
    """
    path, size = request.location, request.size or 224
    if not ((path / "train").is_dir() and (path / "val").is_dir()):
        raise UserError(f"{path} does not hold ImageNet as train/CLASS/*.JPEG and val/CLASS/*.JPEG.")
    classes = class_names(path / "train")
    shape, margin = (3, size, size), 256 / 224
    lazy = {
        name: ImageFileExamples(*listed(path / folder, classes), shape, margin)
        for name, folder in (("train", "train"), ("test", "val"))
    }
    examples, bad = _readable(lazy, False, request.bad_images)
    notes = _settled(bad, request.bad_images)
    _require_all(examples, classes)
    return RawData(
        examples["train"],
        examples["test"],
        classes,
        shape,
        margin=margin,
        origins={"test": "the folder val of ImageNet"},
        resized=f"the middle of every image is scaled to {size}x{size} pixels",
        notes=notes,
    )


def _readable(
    splits: dict[str, ImageFileExamples], in_memory: bool, bad_images: str
) -> tuple[dict[str, Examples], list[BadImage]]:
    """The examples that can be decoded, and the errors of the others.

    Images that are not kept in memory are decoded here only if bad ones are to be skipped, because it takes
    as long as an epoch.
    """
    bad: list[BadImage] = []
    found: dict[str, Examples] = {}
    for name, lazy in splits.items():
        if in_memory:
            found[name], wrong = lazy.decode_all()
        elif bad_images == "skip":
            wrong = [result for result in lazy.attempts() if isinstance(result, BadImage)]
            found[name] = _without(lazy, wrong)
        else:
            found[name], wrong = lazy, []
        bad += wrong
    return found, bad


def _without(split: Kind, bad: Iterable[BadImage]) -> Kind:
    """The same files without the bad ones."""
    names = {error.path for error in bad}
    if not names:
        return split
    kept = torch.tensor([i for i, file in enumerate(split.files) if file not in names], dtype=torch.int64)
    if isinstance(split, ImageFileExamples):
        return split.subset(kept)
    return Listed([split.files[i] for i in kept.tolist()], split.labels[kept])


def _settled(bad: list[BadImage], bad_images: Literal["refuse", "skip"]) -> tuple[str, ...]:
    """Refuses bad images, or returns a sentence about those that are skipped."""
    if not bad:
        return ()
    names = ", ".join(f"{error.path} ({error.reason})" for error in bad[:NAMED])
    names += f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    if len(bad) == 1:
        what = f"{bad[0].path} cannot be read as an image ({bad[0].reason})"
    else:
        what = f"{len(bad)} images cannot be read: {names}"
    if bad_images == "skip":
        return (f"{what}; skipped.",)
    them = "it" if len(bad) == 1 else "them"
    raise UserError(f"{what}; replace or remove {them}, or skip {them} with --data.bad-images skip.")


def _require_all(examples: dict[str, Examples], classes: tuple[str, ...]) -> None:
    """Skipping bad images may leave a class or a split empty."""
    counts = torch.bincount(examples["train"].labels, minlength=len(classes)).tolist()
    if 0 in counts:
        raise UserError(f"No training image of {classes[counts.index(0)]!r} can be read; replace them.")
    for name, split in examples.items():
        if len(split) == 0:
            raise UserError(f"No image of the {name} split can be read; replace them.")


def _resizing(forms: ImageForms, shape: tuple[int, int, int]) -> str:
    if forms.common == shape[1:]:
        return ""
    smallest, largest = (f"{height}x{width}" for height, width in (forms.smallest, forms.largest))
    sizes = smallest if smallest == largest else f"{smallest} to {largest}"
    return f"the middle of every image is scaled to {shape[1]}x{shape[2]} pixels (files: {sizes})"
