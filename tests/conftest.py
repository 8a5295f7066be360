"""Shared by all tests: one thread each, so that parallel test workers do not fight over the cores."""

import pytest
import torch

from hff.data import DataSet, load_data

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def digits() -> DataSet:
    return load_data("digits")
