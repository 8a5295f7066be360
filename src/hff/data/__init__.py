"""Data sets: by name, from arrays or from files, as mini-batches of an epoch."""

from hff.data.augmentation import Augmentation
from hff.data.batches import Batches
from hff.data.catalogue import datasets
from hff.data.dataset import DataSet
from hff.data.examples import Examples, TensorExamples
from hff.data.fetching.files import get, needs_download, status
from hff.data.fetching.sources import Download, Source
from hff.data.info import DataSetInfo, ReadRequest
from hff.data.loading import DataWarning, load_data
from hff.data.preprocessing import Preprocessing
from hff.data.raw import RawData
from hff.data.readers.image_files import ImageFileExamples

__all__ = [
    "Augmentation",
    "Batches",
    "DataSet",
    "DataSetInfo",
    "DataWarning",
    "Download",
    "Examples",
    "ImageFileExamples",
    "Preprocessing",
    "RawData",
    "ReadRequest",
    "Source",
    "TensorExamples",
    "datasets",
    "get",
    "load_data",
    "needs_download",
    "status",
]
