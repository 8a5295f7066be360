import torch

from hff.feedback import FeedbackLinear


def test_the_error_comes_back_through_fixed_weights_and_the_layer_learns_as_ever() -> None:
    layer = FeedbackLinear(3, 2)
    x = torch.randn(5, 3, requires_grad=True)
    error = torch.randn(5, 2)
    out = layer(x)
    out.backward(error)
    assert torch.equal(out, x @ layer.weight.T + layer.bias)
    assert torch.allclose(x.grad, error @ layer.feedback)
    assert torch.allclose(layer.weight.grad, error.T @ x.detach())
    assert torch.allclose(layer.bias.grad, error.sum(0))
    assert not torch.allclose(layer.feedback, layer.weight)


def test_feedback_is_saved_but_never_learned() -> None:
    layer = FeedbackLinear(3, 2)
    assert "feedback" in layer.state_dict()
    assert {name for name, _ in layer.named_parameters()} == {"weight", "bias"}
    assert torch.equal(layer(torch.ones(1, 3)), layer(torch.ones(1, 3, requires_grad=True)))
