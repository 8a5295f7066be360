"""Data sets by name, from their files to the mini-batches of an epoch."""

from hff.data.augmentation import Augmentation
from hff.data.batches import Batches
from hff.data.catalogue import DataSetInfo, datasets
from hff.data.dataset import DataSet
from hff.data.examples import Examples, TensorExamples
from hff.data.fetching.files import get, status
from hff.data.loading import load_data
from hff.data.preprocessing import Preprocessing
from hff.data.readers.image_files import ImageFileExamples

__all__ = [
    "Augmentation",
    "Batches",
    "DataSet",
    "DataSetInfo",
    "Examples",
    "ImageFileExamples",
    "Preprocessing",
    "TensorExamples",
    "datasets",
    "get",
    "load_data",
    "status",
]
