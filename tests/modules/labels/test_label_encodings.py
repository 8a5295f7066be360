"""Properties of every label encoding, and results worked out by hand."""

from collections.abc import Callable

import pytest
import torch

from hff.errors import UserError
from hff.modules.labels import (
    AdditiveEncoding,
    Appended,
    ClassCodes,
    LabelChannel,
    LabelEncoding,
    Morphology,
    Overlay,
    PlaneWaves,
    one_hot_encoding,
)
from hff.networks import Shape

IMAGE, TABLE = (2, 8, 8), (7,)
Make = Callable[[], LabelEncoding]
ENCODINGS: dict[str, tuple[Make, Shape, Shape]] = {
    "overlay": (lambda: Overlay(IMAGE, 5, 2.0), IMAGE, IMAGE),
    "appended": (lambda: Appended(TABLE, 5, 2.0), TABLE, (12,)),
    "appended to an image": (lambda: Appended(IMAGE, 5, 2.0), IMAGE, (133,)),
    "codes": (lambda: ClassCodes(IMAGE, 5, 20), IMAGE, (148,)),
    "codes of a table": (lambda: ClassCodes(TABLE, 5), TABLE, (107,)),
    "waves": (lambda: PlaneWaves(IMAGE, 5), IMAGE, IMAGE),
    "morphology": (lambda: Morphology(IMAGE, 5), IMAGE, IMAGE),
    "channel": (lambda: LabelChannel(IMAGE, 5), IMAGE, (3, 8, 8)),
}
ADDITIVE = [name for name in ENCODINGS if name != "morphology"]
every = pytest.mark.parametrize("name", ENCODINGS)
every_additive = pytest.mark.parametrize("name", ADDITIVE)


@every
def test_shapes(name: str) -> None:
    make, in_shape, out_shape = ENCODINGS[name]
    encoding, x = make(), torch.randn(4, *in_shape)
    assert encoding.out_shape == out_shape
    assert encoding.classes == 5
    assert encoding(x, torch.tensor([0, 4, 2, 2])).shape == (4, *out_shape)
    assert encoding.neutral(x).shape == (4, *out_shape)


@every
def test_samples_are_encoded_independently(name: str) -> None:
    make, in_shape, _ = ENCODINGS[name]
    encoding, x, y = make(), torch.randn(6, *in_shape), torch.tensor([3, 0, 3, 1, 4, 2])
    before = x.clone()
    together = encoding(x, y)
    alone = torch.cat([encoding(x[i : i + 1], y[i : i + 1]) for i in range(6)])
    assert torch.equal(together, alone)
    assert torch.equal(together, encoding(x, y))
    assert torch.equal(x, before)


@every
def test_labels_differ_and_the_neutral_label_is_their_mean(name: str) -> None:
    make, in_shape, _ = ENCODINGS[name]
    encoding, x = make(), torch.randn(3, *in_shape)
    labeled = [encoding(x, torch.full((3,), label)) for label in range(5)]
    for one in range(5):
        for other in range(one):
            assert (labeled[one] - labeled[other]).abs().max() > 0.1
    assert torch.allclose(encoding.neutral(x), torch.stack(labeled).mean(0), atol=1e-6)


@every_additive
def test_all_labels_share_the_product_of_a_linear_layer(name: str) -> None:
    make, in_shape, out_shape = ENCODINGS[name]
    encoding, x = make(), torch.randn(3, *in_shape)
    assert isinstance(encoding, AdditiveEncoding)
    assert encoding.patterns().shape == (5, *out_shape)
    weight = torch.randn(6, encoding.base(x).flatten(1).shape[1])
    shared, added = encoding.base(x).flatten(1) @ weight.T, encoding.patterns().flatten(1) @ weight.T
    for label in range(5):
        product = encoding(x, torch.full((3,), label)).flatten(1) @ weight.T
        assert torch.allclose(product, shared + added[label], atol=1e-4)


@every
def test_only_the_label_channel_has_parameters(name: str) -> None:
    make, in_shape, _ = ENCODINGS[name]
    encoding, x = make(), torch.randn(2, *in_shape)
    assert [key for key, _ in encoding.named_parameters()] == (["table"] if name == "channel" else [])
    assert encoding(x, torch.tensor([0, 1])).requires_grad == (name == "channel")


@every
def test_a_checkpoint_restores_the_same_labels(name: str) -> None:
    make, in_shape, _ = ENCODINGS[name]
    one, other, x, y = make(), make(), torch.randn(5, *in_shape), torch.arange(5)
    if "codes" in name or name == "channel":
        assert not torch.equal(one(x, y), other(x, y))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x, y), other(x, y))


def test_overlay_by_hand() -> None:
    encoding = Overlay((2, 2, 2), 3, 0.5)
    x = torch.arange(1.0, 9.0).view(1, 2, 2, 2)
    # The first three of eight entries are replaced: the top row of channel 0 and one pixel of its second row.
    assert encoding(x, torch.tensor([1])).flatten().tolist() == [0, 0.5, 0, 4, 5, 6, 7, 8]
    assert encoding.base(x).flatten().tolist() == [0, 0, 0, 4, 5, 6, 7, 8]
    assert torch.allclose(encoding.neutral(x).flatten()[:4], torch.tensor([1 / 6, 1 / 6, 1 / 6, 4]))


def test_overlay_hides_what_it_overwrites() -> None:
    encoding, x = Overlay((1, 2, 2), 2, 1.0), torch.randn(1, 1, 2, 2)
    changed = x.clone()
    changed[0, 0, 0] = torch.tensor([torch.inf, torch.nan])
    assert torch.equal(encoding(x, torch.tensor([0])), encoding(changed, torch.tensor([0])))


def test_overlay_may_fill_the_input_but_not_exceed_it() -> None:
    x = torch.randn(1, 1, 2, 2)
    assert Overlay((1, 2, 2), 4, 1.0)(x, torch.tensor([3])).flatten().tolist() == [0, 0, 0, 1]
    with pytest.raises(UserError, match="5 classes does not fit over an input of 4 entries"):
        Overlay((1, 2, 2), 5, 1.0)


def test_appended_by_hand() -> None:
    encoding, x = Appended((2,), 3, 0.75), torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    assert encoding(x, torch.tensor([2, 0])).tolist() == [[5, 6, 0, 0, 0.75], [7, 8, 0.75, 0, 0]]
    assert encoding.neutral(x)[0].tolist() == [5, 6, 0.25, 0.25, 0.25]


def test_one_hot_labels_are_written_over_images_and_appended_to_tables() -> None:
    assert isinstance(one_hot_encoding((1, 8, 8), 10, 1.0), Overlay)
    assert isinstance(one_hot_encoding((13,), 3, 1.0), Appended)


@pytest.mark.parametrize("make", [Overlay, Appended])
def test_a_one_hot_label_with_zero_intensity_raises_an_error(make: type[Overlay] | type[Appended]) -> None:
    with pytest.raises(UserError, match="greater than 0"):
        make((1, 4, 4), 3, 0.0)


def test_codes_by_hand() -> None:
    encoding, x = ClassCodes((2,), 2, length=3, scale=0.5), torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    encoding.codes.copy_(torch.tensor([[0, 1, 1], [1, 0, 1]]))
    assert encoding(x, torch.tensor([1, 0])).tolist() == [[5, 6, 0.5, 0, 0.5], [7, 8, 0, 0.5, 0.5]]
    assert encoding.neutral(x)[0].tolist() == [5, 6, 0.25, 0.25, 0.5]


def test_codes_are_binary_have_the_density_and_depend_on_the_seed() -> None:
    torch.manual_seed(3)
    encoding = ClassCodes((4,), 100, length=200, density=0.2)
    torch.manual_seed(3)
    assert torch.equal(encoding.codes, ClassCodes((4,), 100, length=200, density=0.2).codes)
    assert encoding.codes.unique().tolist() == [0, 1]
    assert 0.18 < float(encoding.codes.mean()) < 0.22


def test_no_two_classes_share_a_code() -> None:
    # All eight codes of length 3 are needed, but eight random draws are almost never all different.
    for seed in range(20):
        torch.manual_seed(seed)
        assert len(ClassCodes((1,), 8, length=3).codes.unique(dim=0)) == 8


def test_codes_that_cannot_differ_raise_an_error() -> None:
    with pytest.raises(UserError, match="choose longer codes"):
        ClassCodes((1,), 9, length=3)
    with pytest.raises(UserError, match="a density closer to"):
        ClassCodes((1,), 2, density=0.0)


def test_label_channel_by_hand() -> None:
    encoding = LabelChannel((1, 1, 2), 2)
    with torch.no_grad():
        encoding.table.copy_(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    x = torch.tensor([[[[8.0, 9.0]]]])
    assert encoding(x, torch.tensor([1])).tolist() == [[[[8, 9]], [[3, 6]]]]
    assert encoding.neutral(x).tolist() == [[[[8, 9]], [[2, 4]]]]


def test_label_channel_is_initialized_standard_normal() -> None:
    table = LabelChannel((3, 32, 32), 10).table.detach()
    assert table.shape == (10, 1024)
    assert abs(float(table.mean())) < 0.03
    assert abs(float(table.std()) - 1) < 0.03


def test_gradients_reach_the_pictures_of_the_labels_in_the_batch() -> None:
    encoding = LabelChannel((1, 2, 2), 4)
    encoding(torch.randn(3, 1, 2, 2), torch.tensor([1, 3, 1])).sum().backward()
    assert encoding.table.grad is not None
    assert encoding.table.grad.tolist() == [[0] * 4, [2] * 4, [0] * 4, [1] * 4]


@pytest.mark.parametrize("make", [PlaneWaves, Morphology, LabelChannel])
def test_encodings_that_need_images_reject_tables(make: Callable[[Shape, int], LabelEncoding]) -> None:
    with pytest.raises(UserError, match=r"into images .* shape \[13\]"):
        make((13,), 3)
