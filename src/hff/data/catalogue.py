"""The data sets that go by a name, and what is known of each before it is loaded."""

from dataclasses import dataclass, field

from hff.data.augmentation import Augmentation
from hff.data.class_names import CIFAR10, CIFAR100, DIGITS, FASHION_MNIST


@dataclass(frozen=True)
class DataSetInfo:
    """One line of the list of data sets."""

    description: str
    license: str
    homepage: str
    classes: int | None = None
    """How many classes; None where the user's own data decide."""
    in_shape: tuple[int, ...] | None = None
    """The shape of one input [C, H, W]; None where the user's own data decide."""
    train_size: int | None = None
    test_size: int | None = None
    mean: tuple[float, ...] = ()
    """Well-known channel means; empty where they are computed from the training split."""
    std: tuple[float, ...] = ()
    class_names: tuple[str, ...] = ()
    augmentation: Augmentation = field(default_factory=Augmentation.none)
    takes_path: bool = False
    """Whether the user says where the data are."""


datasets: dict[str, DataSetInfo] = {
    "digits": DataSetInfo(
        "Handwritten digits of 8x8 pixels; part of scikit-learn, nothing to download",
        license="CC BY 4.0",
        homepage="https://archive.ics.uci.edu/dataset/80",
        classes=10,
        in_shape=(1, 8, 8),
        train_size=1437,
        test_size=360,
        class_names=DIGITS,
    ),
    "mnist": DataSetInfo(
        "Handwritten digits of 28x28 pixels",
        license="CC BY-SA 3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        classes=10,
        in_shape=(1, 28, 28),
        train_size=60000,
        test_size=10000,
        mean=(0.1307,),
        std=(0.3081,),
        class_names=DIGITS,
    ),
    "fashion_mnist": DataSetInfo(
        "Pieces of clothing, grey, 28x28 pixels",
        license="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        classes=10,
        in_shape=(1, 28, 28),
        train_size=60000,
        test_size=10000,
        mean=(0.2860,),
        std=(0.3530,),
        class_names=FASHION_MNIST,
    ),
    "cifar10": DataSetInfo(
        "Small colour photographs of animals and vehicles, 32x32 pixels",
        license="not stated by its authors",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        classes=10,
        in_shape=(3, 32, 32),
        train_size=50000,
        test_size=10000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        class_names=CIFAR10,
        augmentation=Augmentation(crop=4, flip=True),
    ),
    "cifar100": DataSetInfo(
        "Small colour photographs of a hundred kinds of things, 32x32 pixels",
        license="not stated by its authors",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        classes=100,
        in_shape=(3, 32, 32),
        train_size=50000,
        test_size=10000,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        class_names=CIFAR100,
        augmentation=Augmentation(crop=4, flip=True),
    ),
    "imagenet": DataSetInfo(
        "Colour photographs of a thousand kinds of things; you must register to download it yourself",
        license="non-commercial research and education only",
        homepage="https://image-net.org/download.php",
        classes=1000,
        in_shape=(3, 224, 224),
        train_size=1281167,
        test_size=50000,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        augmentation=Augmentation(crop=4, flip=True),
        takes_path=True,
    ),
    "folder": DataSetInfo(
        "Your own images: one folder per class, or train/ and test/ with one folder per class in each",
        license="yours",
        homepage="",
        takes_path=True,
    ),
    "npz": DataSetInfo(
        "Your own arrays: an .npz file with x and y, and perhaps x_test and y_test",
        license="yours",
        homepage="",
        takes_path=True,
    ),
}
