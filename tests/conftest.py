"""Shared by all tests. One thread each, so that parallel test workers do not compete for cores."""

import pytest
import torch

from hff.data import DataSet, load_data

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def digits() -> DataSet:
    return load_data("digits")
