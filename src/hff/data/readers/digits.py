"""The digits that come with scikit-learn."""

import numpy as np
import torch

from hff.data.examples import TensorExamples
from hff.data.info import ReadRequest
from hff.data.raw import RawData
from hff.data.splits import carve_test


def read_digits(request: ReadRequest) -> RawData:
    """Images [1797, 1, 8, 8] with values up to 16. The test split is the same fifth for every seed."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.from_numpy(x.astype(np.uint8)).view(-1, 1, 8, 8)
    labels = torch.from_numpy(y.astype(np.int64))
    train, test = carve_test(labels, "digits")
    whole = TensorExamples(images, labels)
    return RawData(
        whole.subset(train),
        whole.subset(test),
        request.class_names,
        (1, 8, 8),
        scale=16.0,
        origins={"test": "a fixed fifth of the data"},
    )
