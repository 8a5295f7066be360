"""Facts that follow from the modules of a method: its group, and the parameters of a prediction."""

import pytest
import torch
from torch import Tensor, nn

from hff.errors import UserError
from hff.methods import Form, Group, MethodInfo, create_method, methods
from hff.methods.families.local import LocalMethod
from hff.methods.method import Method
from hff.networks import Network, create_network

MLP = create_network("mlp", (1, 6, 6), 4, widths=(10, 8))
CNN = create_network("cnn", (1, 8, 8), 4, channels=(4, 8))


def pairs() -> list[tuple[str, Network]]:
    return [
        (name, network)
        for name in sorted(methods)
        for network in (MLP, CNN)
        if methods[name].unsupported_reason(network, 4) is None
    ]


def test_hff_predicts_with_the_head_and_prototypes_of_the_last_layer_only() -> None:
    network = create_network("cnn", (3, 32, 32), 10)
    method = create_method("hff", network, 10, aux_channels=(128,), head_hidden=256)
    assert sum(p.numel() for p in method.parameters()) == 1_114_048
    assert method.prediction_parameters == 651_968
    used = [*method.blocks, method.heads[-1], method.prototypes[-1]]
    assert method.prediction_parameters == sum(p.numel() for part in used for p in part.parameters())
    combined = create_method("hff", network, 10, aux_channels=(128,), head_hidden=256, read_out="mean")
    assert combined.prediction_parameters == 1_114_048
    assert create_method("backprop", network, 10).prediction_parameters == 113_738


@pytest.mark.parametrize(("name", "network"), pairs(), ids=lambda value: getattr(value, "name", value))
def test_exactly_the_parameters_of_a_prediction_affect_the_scores(name: str, network: Network) -> None:
    """Random values in a parameter change the scores if and only if the parameter is counted."""
    options = {"steps": 2, "width": 8} if name == "noprop_dt" else {}
    method = create_method(name, network, 4, **options).eval()
    x = torch.randn(8, *network.in_shape)
    with torch.no_grad():
        for parameter in method.parameters():
            if not parameter.any():  # some read-outs start at zero
                parameter.normal_()
        before, count = method(x), 0
        for parameter in method.parameters():
            kept = parameter.clone()
            parameter.copy_(3 * torch.randn_like(parameter))
            count += parameter.numel() * (not torch.equal(method(x), before))
            parameter.copy_(kept)
    assert method.prediction_parameters == count


def test_the_modes_of_the_modules_and_the_weights_are_left_alone() -> None:
    method = create_method("local_errors", create_network("mlp", (6,), 4, widths=(5,), norm="batch"), 4)
    method.train()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    assert method.prediction_parameters > 0
    assert method.training
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    method.in_shape = None
    with pytest.raises(UserError, match="only if create_method made the method"):
        _ = method.prediction_parameters


@pytest.mark.parametrize(
    ("group", "names"),
    [
        (Group.LOCAL, ["hff", "ff", "mono_forward", "simcnn", "sff", "local_errors", "symba", "softhebb"]),
        (Group.AUXILIARY, ["noprop_dt"]),
        (Group.FEEDBACK, ["dfa", "ssdfa", "fa", "dll", "equilibrium_prop", "predictive_coding", "ffcl"]),
        (Group.FURTHER, ["tff"]),
        (Group.BACKPROP, ["backprop"]),
    ],
)
def test_methods_are_grouped_by_what_they_are_allowed(group: Group, names: list[str]) -> None:
    assert {name: create_method(name, MLP, 4).group for name in names} == dict.fromkeys(names, group)


def test_the_group_is_that_of_the_instance() -> None:
    assert create_method("hff", CNN, 4).group == Group.AUXILIARY
    assert create_method("hff", CNN, 4, head_hidden=0).group == Group.LOCAL
    assert create_method("simcnn", CNN, 4).group == Group.LOCAL
    assert create_method("simcnn", CNN, 4, auxiliary_layers=1).group == Group.AUXILIARY
    assert create_method("ff", MLP, 4, negatives="hard").group == Group.FEEDBACK
    assert create_method("tff", MLP, 4, overlap=False).group == Group.LOCAL


def test_a_rule_of_another_package_declares_its_form_and_its_heads_tell_its_group() -> None:
    class Deep(LocalMethod):
        """A rule with a hidden layer in each head."""

        name = "deep"
        info = MethodInfo(title="Deep", paper="none", form=Form({"activation": "tanh"}))

        def __init__(self, network: Network, classes: int) -> None:
            super().__init__(network, classes)
            for layer in range(len(self.blocks)):
                width = self.block(layer).out_features
                self.heads[layer] = nn.Sequential(nn.Linear(width, 3), nn.Tanh(), nn.Linear(3, classes))

    class Through(Method):
        """A rule that trains by one loss at the output."""

        name = "through"
        info = MethodInfo(title="Through", paper="none", gradient_reach="all", top_signal=True)

        def features(self, layer: int, h: Tensor) -> Tensor:
            return self.block(layer).activity(h)

    assert Deep(MLP, 4).group == Group.AUXILIARY
    assert Deep.info.form.network == {"activation": "tanh"}
    assert Through(MLP, 4).group == Group.BACKPROP
