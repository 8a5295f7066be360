"""The parts of HFF in a model of your own: prototypes in place of a linear classifier.

python examples/prototypes_in_your_model.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import hff


def main() -> float:
    torch.manual_seed(0)
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x = (x.float() - 8) / 6
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    prototypes = hff.modules.Prototypes(classes=10, dim=32)
    optimizer = torch.optim.Adam([*model.parameters(), *prototypes.parameters()], lr=1e-2)
    for step in range(100):
        features = hff.functional.project(model(x[:1500]))
        scores = hff.functional.class_scores(features, prototypes(), temperature=10.0)
        loss = hff.functional.smooth_margin_loss(scores, y[:1500], temperature=10.0, scale_margin=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prototypes.after_step()  # puts the prototypes back onto the unit sphere
        if step % 20 == 19:
            print(f"step {step + 1}  loss {loss.item():.3f}")
    features = hff.functional.project(model(x[1500:]))
    scores = hff.functional.class_scores(features, prototypes(), temperature=10.0)
    accuracy = float((scores.argmax(1) == y[1500:]).float().mean())
    print(f"accuracy on the other 297 digits: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
