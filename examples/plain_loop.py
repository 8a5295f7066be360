"""HFF in a plain PyTorch loop: your own data loader, your own epochs, one call for each step.

python examples/plain_loop.py                        # handwritten digits, seconds
python examples/plain_loop.py --data mnist --epochs 5
"""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import hff


def tensors(data: hff.DataSet, examples: hff.Examples) -> TensorDataset:
    """The examples as tensors: inputs [N, C, H, W], labels [N]."""
    return TensorDataset(data.preprocessing(examples.fetch(torch.arange(len(examples)))), examples.labels)


def main() -> float:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="digits")
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()

    torch.manual_seed(0)
    data = hff.load_data(given.data)
    loader = DataLoader(tensors(data, data.train), batch_size=64, shuffle=True)
    x_test, y_test = tensors(data, data.test).tensors

    network = hff.create_network("mlp", data.in_shape, len(data.classes), widths=(256, 256, 256))
    method = hff.create_method("hff", network, len(data.classes))
    trainer = hff.Trainer(method, hff.Settings(learning_rate=1e-3))
    for epoch in range(given.epochs):
        for x, y in loader:
            losses = trainer.step(hff.Batch(x, y))
        method.eval()
        with torch.no_grad():
            accuracy = {n: (s.argmax(1) == y_test).float().mean() for n, s in method.layer_scores(x_test)}
        layers = "  ".join(f"layer {layer} {share:.1%}" for layer, share in accuracy.items())
        print(f"epoch {epoch + 1}  last loss {float(losses['block2']):.3f}  test {layers}")
    return float(accuracy[2])


if __name__ == "__main__":
    main()
