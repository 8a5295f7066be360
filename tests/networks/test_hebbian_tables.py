"""The tables of Hebbian learning against shapes and parameter counts worked by hand."""

import pytest
import torch

from hff.config import fields_of
from hff.errors import UserError
from hff.networks import Pool, create_network, hebbian, networks

TABLES = [name for name, table in networks.items() if table.__module__ == hebbian.__name__]


def test_every_table_is_registered() -> None:
    assert TABLES == ["softhebb", "hebb_cnn"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("in_shape", [(1, 28, 28), (3, 32, 32)])
def test_every_table_explains_itself_and_gives_what_it_says(name: str, in_shape: tuple[int, ...]) -> None:
    assert all(field.help and not field.required for field in fields_of(networks[name]))
    h = torch.randn(4, *in_shape)
    for block in create_network(name, in_shape, 10, width_factor=1 / 16).blocks():
        h = block(h)
        assert h.shape[1:] == block.out_shape
    assert torch.isfinite(h).all()


def test_softhebb() -> None:
    blocks = create_network("softhebb", (3, 32, 32), 10).blocks()
    assert [b.map_shape for b in blocks] == [(96, 32, 32), (384, 16, 16), (1536, 8, 8)]
    assert [b.out_shape for b in blocks] == [(96, 16, 16), (384, 8, 8), (1536, 4, 4)]
    assert blocks[-1].out_features == 24576
    weights = 25 * 3 * 96 + 9 * 96 * 384 + 9 * 384 * 1536
    assert sum(p.numel() for b in blocks for p in b.parameters()) == weights
    assert [(b.row.power, b.row.pool) for b in blocks] == [
        (0.7, Pool(4, 2, 1)),
        (1.4, Pool(4, 2, 1)),
        (1.0, Pool(2, 2, kind="average")),
    ]
    assert {(b.row.activation, b.row.norm, b.row.norm_at, b.row.padding_mode) for b in blocks} == {
        ("triangle", "batch_plain", "input", "reflect")
    }
    with pytest.raises(UserError, match="powers names 3 exponents, but channels names 2 layers"):
        create_network("softhebb", (3, 32, 32), 10, channels=(8, 16))


def test_hebb_cnn() -> None:
    blocks = create_network("hebb_cnn", (3, 32, 32), 10).blocks()
    assert [b.out_shape for b in blocks] == [(96, 14, 14), (128, 12, 12), (192, 5, 5), (256, 3, 3), (300,)]
    weights = 25 * 3 * 96 + 9 * (96 * 128 + 128 * 192 + 192 * 256) + 256 * 9 * 300
    assert sum(p.numel() for b in blocks for p in b.parameters()) == weights
    assert {(b.row.norm, b.row.norm_at) for b in blocks} == {("batch_plain", "output")}
