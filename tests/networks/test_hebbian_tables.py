"""Networks of Hebbian learning: shapes and parameter counts computed by hand."""

import pytest

from hff.errors import UserError
from hff.networks import Pool, create_network


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
    with pytest.raises(UserError, match="powers has 3 values, but there are 2 layers"):
        create_network("softhebb", (3, 32, 32), 10, channels=(8, 16))


def test_hebb_cnn() -> None:
    blocks = create_network("hebb_cnn", (3, 32, 32), 10).blocks()
    assert [b.out_shape for b in blocks] == [(96, 14, 14), (128, 12, 12), (192, 5, 5), (256, 3, 3), (300,)]
    weights = 25 * 3 * 96 + 9 * (96 * 128 + 128 * 192 + 192 * 256) + 256 * 9 * 300
    assert sum(p.numel() for b in blocks for p in b.parameters()) == weights
    assert {(b.row.norm, b.row.norm_at) for b in blocks} == {("batch_plain", "output")}
