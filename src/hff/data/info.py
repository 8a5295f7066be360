"""The description of a data set: one row of the catalogue."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hff.data.augmentation import Augmentation
from hff.data.fetching.sources import Source
from hff.data.raw import RawData
from hff.errors import UserError


@dataclass(frozen=True)
class ReadRequest:
    """What `load_data` asks a reader for."""

    name: str
    """The name of the data set, for messages."""
    info: "DataSetInfo"
    path: Path | None = None
    """The folder where the files of `info.source` are, or the user's path. None if there is neither."""
    data_dir: Path | None = None
    """The folder for data files, for readers that locate or download their files themselves."""
    size: int | None = None
    """The wanted height and width. A reader may ignore it: `load_data` resizes what it returns."""
    in_shape: tuple[int, ...] | None = None
    """The shape that a trained network takes. None if the data decides. Readers of image files follow it."""
    bad_images: Literal["refuse", "skip"] = "refuse"
    """What to do with image files that cannot be read."""
    download: bool = True
    """Whether a reader that downloads files itself may do so."""

    @property
    def least_classes(self) -> int:
        """The smallest number of classes. New data for a trained network may have a single one."""
        return 2 if self.in_shape is None else 1

    @property
    def location(self) -> Path:
        """The path, expanded."""
        if self.path is None:
            raise UserError(f"The data set {self.name} needs a path to its files (--data.path).")
        return self.path.expanduser()

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the catalogue, or their numbers."""
        return self.info.class_names or tuple(str(i) for i in range(self.info.classes or 0))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the source, in the order of its layout."""
        found = self.info.source and self.info.source.files_in(self.location)
        if not found:
            raise UserError(
                f"{self.location} does not hold all files of {self.name}; run `hff data get {self.name}`."
            )
        return found

    def damaged(self, file: Path, reason: str) -> UserError:
        """The error for a file with the wrong content."""
        return UserError(f"{file} is damaged ({reason}); delete it and run `hff data get {self.name}`.")


@dataclass(frozen=True)
class DataSetInfo:
    """A data set: facts that are known before it is loaded, and how it is read.

    Another package adds a data set with an entry point in the group "hff.datasets" that names an object of
    this class, or a function that returns one.
    """

    description: str
    read: Callable[[ReadRequest], RawData]
    """Reads the data set."""
    license: str
    homepage: str = ""
    source: Source | None = None
    """The files to find or download. None for data without such files."""
    path_to: str = ""
    """What the user's path points to, such as ".npz file". Empty if the data set does not take a path."""
    origin: str = ""
    """Where data without a source comes from, such as "scikit-learn"."""
    classes: int | None = None
    """The number of classes. None if it depends on the user's data."""
    in_shape: tuple[int, ...] | None = None
    """The shape of one input, [C, H, W] or [D]. None if it depends on the user's data."""
    train_size: int | None = None
    test_size: int | None = None
    mean: tuple[float, ...] = ()
    """The published mean of each channel. If empty, it is computed from the training split."""
    std: tuple[float, ...] = ()
    """The published standard deviation of each channel, like `mean`."""
    class_names: tuple[str, ...] = ()
    augmentation: Augmentation = field(default_factory=Augmentation.none)
    """The augmentation that `augment="auto"` stands for."""
    network: str = "mlp"
    """The name of the network that is trained on the data if no other is chosen."""

    @property
    def takes_path(self) -> bool:
        """Whether the user may give the path of the data."""
        return bool(self.path_to)

    @property
    def needs_path(self) -> bool:
        """Whether the user must give the path of the data."""
        return self.takes_path and self.source is None
