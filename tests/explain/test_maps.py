"""Activation maps of runs and methods, and the images that are chosen by kind."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import hff
from hff.data import DataSet
from hff.data.samples import write_samples
from hff.errors import UserError
from hff.explain import activation_maps, answers_on, embedding, reliability
from hff.explain.answers import Answers, LayerAnswers
from hff.explain.feature_space import project
from hff.methods import methods
from hff.methods.backprop import Backprop
from hff.plotting import as_png

CNN = {
    "hff",
    "backprop",
    "mono_forward",
    "fa",
    "softhebb",
    "ff",
    "equilibrium_prop",
    "noprop_dt",
    "cwconv",
    "simcnn",
}

UNTRAINED_CONSTANT = {"equilibrium_prop", "noprop_dt"}
"""Methods whose scores do not depend on the image before training."""


def is_blank(png: bytes) -> bool:
    return float(np.asarray(Image.open(io.BytesIO(png)).convert("L")).std()) < 5


def test_exact_maps_of_a_run_sum_to_the_scores(run: Path, digits: DataSet) -> None:
    assert digits.test is not None
    stored = digits.test.fetch(torch.arange(40))
    maps = activation_maps(run, stored)
    assert maps.how == "exact"
    method = hff.load_method(run)
    scores = dict(method.layer_scores(digits.preprocessing(stored)))
    for each in maps.layers:
        best = scores[each.layer].max(1)
        torch.testing.assert_close(each.positions.sum((1, 2)), best.values.detach(), atol=1e-5, rtol=1e-5)
        assert each.predicted.equal(best.indices)
        assert each.classes.equal(each.predicted)
    assert maps.predicted.equal(method.predict(digits.preprocessing(stored)))
    assert [tuple(each.positions.shape) for each in maps.layers] == [(40, 4, 4), (40, 2, 2)]


def test_the_images_are_those_of_the_data(run: Path, digits: DataSet) -> None:
    assert digits.test is not None
    stored = digits.test.fetch(torch.arange(3))
    torch.testing.assert_close(activation_maps(run, stored).images, stored.float() / 16, atol=1e-5, rtol=0)


@pytest.mark.parametrize("of", ["prediction", "3", 3, "label"])
def test_the_explained_class_is_chosen(run: Path, digits: DataSet, of: str | int) -> None:
    assert digits.test is not None
    index = torch.arange(12)
    labels = digits.test.labels[index]
    maps = activation_maps(run, digits.test.fetch(index), of=of, labels=labels)
    wanted = {"prediction": maps.predicted, "label": labels}.get(str(of), torch.full((12,), 3))
    assert all(each.classes.equal(wanted) for each in maps.layers)


@pytest.mark.parametrize("name", sorted(methods))
def test_every_method_has_maps_of_some_kind(name: str) -> None:
    network = "cnn" if name in CNN else "mlp"
    sizes = {"cnn": {"channels": (10, 20)}, "mlp": {"widths": (8, 6)}}
    for kind, options in ((network, sizes[network]), ("cnn", sizes["cnn"])):
        table = hff.create_network(kind, (1, 8, 8), 10, **options)
        if methods[name].unsupported_reason(table, 10) is None:
            method = hff.create_method(name, table, 10)
            break
    with torch.no_grad():
        # Some heads start at zero.
        for value in [*method.parameters(), *(b for b in method.buffers() if b.is_floating_point())]:
            if not value.any():
                value.copy_(0.1 * torch.randn_like(value))
    maps = activation_maps(method, torch.randn(2, 1, 8, 8))
    assert maps.how == ("exact" if name == "hff" else maps.how)
    assert maps.how in ("exact", "grad_cam", "occlusion")
    for each in maps.layers:
        assert each.positions.shape[0] == 2
        assert each.positions.dim() == 3
        assert bool(each.positions.isfinite().all())
    moved = any(float(each.positions.abs().max()) > 0 for each in maps.layers)
    assert moved or name in UNTRAINED_CONSTANT


def test_grad_cam_weights_channels_by_their_mean_gradient() -> None:
    """Against a network written out by hand."""
    network = hff.create_network("cnn", (1, 8, 8), 3, channels=(5,))
    method = hff.create_method("backprop", network, 3)
    assert isinstance(method, Backprop)
    x = torch.randn(2, 1, 8, 8)
    maps = activation_maps(method, x, how="grad_cam", of=1)
    convolution, linear = method.affine_block(0).affine, method.classifier
    activity = torch.nn.functional.max_pool2d(convolution(x).relu(), 2)
    slope = linear.weight[1].view(5, 4, 4).mean((1, 2))
    by_hand = torch.einsum("c,bchw->bhw", slope, activity).clamp_min(0)
    torch.testing.assert_close(maps.layers[0].positions, by_hand.detach())


def test_occlusion_is_the_fall_of_the_score() -> None:
    network = hff.create_network("mlp", (1, 7, 7), 3, widths=(6,))
    method = hff.create_method("mono_forward", network, 3)
    x = torch.randn(1, 1, 7, 7)
    maps = activation_maps(method, x, how="occlusion", of=2)
    covered = x.clone()
    covered[:, :, 2:5, 3:6] = 0
    with torch.no_grad():
        fall = method(x)[0, 2] - method(covered)[0, 2]
    # A patch of one pixel, and one pixel around it.
    assert float(maps.layers[0].positions[0, 3, 4]) == pytest.approx(float(fall), abs=1e-6)


def test_a_kind_of_map_that_a_method_lacks_is_refused_by_name() -> None:
    mlp = hff.create_method("backprop", hff.create_network("mlp", (1, 8, 8), 10, widths=(6,)), 10)
    x = torch.randn(1, 1, 8, 8)
    with pytest.raises(UserError, match="Exact maps are defined for hff, not for backprop"):
        activation_maps(mlp, x, how="exact")
    with pytest.raises(UserError, match="needs layers with maps"):
        activation_maps(mlp, x, how="grad_cam")
    assert activation_maps(mlp, x).how == "occlusion"
    pairs = hff.create_method("ff", hff.create_network("cnn", (1, 8, 8), 10, channels=(4,)), 10)
    with pytest.raises(UserError, match="choose occlusion"):
        activation_maps(pairs, x, how="grad_cam")
    with pytest.raises(UserError, match="did you mean 'occlusion'"):
        activation_maps(mlp, x, how="oclusion")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="Unknown class 'cat'"):
        activation_maps(mlp, x, of="cat")
    with pytest.raises(UserError, match="Give either images or a kind"):
        activation_maps(mlp)


def answers(labels: list[int], *layers: list[int]) -> Answers:
    own = torch.linspace(0.9, 0.1, len(labels))
    each = [LayerAnswers(torch.tensor(layer), torch.ones(len(labels)), own) for layer in layers]
    return Answers("test", torch.tensor(labels), dict(enumerate(each)), each[-1])


def test_images_are_chosen_by_kind() -> None:
    #                 right  late  wrong  right  late
    found = answers([0, 1, 2, 0, 1], [0, 2, 1, 0, 0], [0, 1, 1, 0, 1])
    assert found.choose("right").tolist() == [0, 3]
    assert found.choose("late").tolist() == [4, 1]
    assert found.choose("wrong").tolist() == [2]
    assert found.choose("hardest").tolist() == [2]


def test_classes_take_turns() -> None:
    found = answers([0, 0, 0, 1], [0, 0, 0, 1])
    assert found.choose("right").tolist() == [0, 3, 1, 2]


def test_a_run_is_explained_by_kind(run: Path, digits: DataSet) -> None:
    assert digits.test is not None
    for kind in ("right", "wrong", "late"):
        maps = activation_maps(run, kind=kind, count=2)  # type: ignore[arg-type]
        assert maps.labels is not None
        right = maps.predicted == maps.labels
        assert bool(right.all()) == (kind != "wrong")
        first = maps.layers[0].predicted == maps.labels
        assert kind != "late" or not bool(first.any())
        number = int(maps.titles[0].split()[1])
        assert int(digits.test.labels[number]) == int(maps.labels[0])


def test_reliability_bins_confidence() -> None:
    layer = LayerAnswers(torch.tensor([0, 0, 1, 1]), torch.tensor([0.95, 0.85, 1.0, 0.55]), torch.zeros(4))
    found = reliability(Answers("test", torch.tensor([0, 1, 1, 0]), {0: layer}, layer), 0)
    assert found.samples == (0, 0, 0, 0, 0, 1, 0, 0, 1, 2)
    assert found.accuracy[9] == 1
    assert found.confidence[9] == pytest.approx(0.975)
    # Distances: 0.55 and 0.85 for the two wrong ones, and 0.025 for two right ones.
    assert found.error == pytest.approx((0.55 + 0.85 + 2 * 0.025) / 4)


def test_answers_agree_with_evaluate(run: Path, digits: DataSet) -> None:
    method, calibration = hff.load_method(run), hff.Run(run).calibration
    assert calibration is not None
    found = answers_on(method, digits, calibration=calibration)
    result = hff.evaluate(method, digits)
    shares = [float(found.right(layer).double().mean()) for layer in found.layers]
    assert shares == pytest.approx([each.accuracy for each in result.layers])
    assert float(found.right().double().mean()) == pytest.approx(result.accuracy)


def test_figures_show_something(run: Path) -> None:
    assert not is_blank(as_png(activation_maps(run, kind="wrong", count=2).figure()))
    assert not is_blank(as_png(embedding(run, projection="pca", samples=100).figure()))


def test_image_files_are_explained(run: Path, tmp_path: Path) -> None:
    write_samples("scans", tmp_path)
    maps = activation_maps(run, tmp_path / "scans")
    assert maps.titles[0] == "eight.png"
    assert maps.labels is None
    assert not is_blank(as_png(maps.figure()))


@pytest.mark.parametrize("projection", ["pca", "tsne"])
def test_an_embedding_places_prototypes_among_features(run: Path, projection: str) -> None:
    found = embedding(run, projection=projection, samples=60, epochs=(1, 2))  # type: ignore[arg-type]
    assert [(each.layer, each.epoch) for each in found.layers] == [
        (layer, epoch) for epoch in (1, 2, None) for layer in (0, 1)
    ]
    for each in found.layers:
        assert each.points.shape == (60, 2)
        assert each.prototypes is not None
        assert each.prototypes.shape == (10, 1, 2)
    again = embedding(run, projection=projection, samples=60)  # type: ignore[arg-type]
    torch.testing.assert_close(again.layers[-1].points, found.layers[-1].points)


def test_pca_keeps_the_largest_distances() -> None:
    line = torch.linspace(-1, 1, 9)
    vectors = torch.stack([0.1 * line.square(), 3 * line, torch.zeros(9)], 1)
    places = project(vectors, "pca")
    torch.testing.assert_close(places[:, 0], 3 * line, atol=1e-4, rtol=0)


def test_embeddings_refuse_in_one_sentence(
    run: Path, digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"no checkpoint of epoch 7 \(kept: 1, 2\)"):
        embedding(run, projection="pca", epochs=(7,))
    pairs = hff.create_method("ff", hff.create_network("mlp", (1, 8, 8), 10, widths=(6,)), 10)
    with pytest.raises(UserError, match="depend on a label"):
        embedding(pairs, digits, projection="pca")
    monkeypatch.setitem(__import__("sys").modules, "umap", None)
    with pytest.raises(UserError, match="pip install 'hff\\[umap\\]'"):
        embedding(run, projection="umap")


def test_methods_without_prototypes_have_an_embedding(backprop_run: Path) -> None:
    found = embedding(backprop_run, projection="pca", samples=50)
    assert [each.prototypes for each in found.layers] == [None]


def test_a_table_is_refused(tmp_path: Path) -> None:
    x: Tensor = torch.randn(40, 3)
    data = DataSet.from_arrays(x, (x[:, 0] > 0).long())
    method = hff.create_method("hff", hff.create_network("mlp", (3,), 2, widths=(4,)), 2)
    with pytest.raises(UserError, match="rows of a table"):
        activation_maps(method, data.preprocessing(x[:2]))
