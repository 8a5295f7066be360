"""What each layer thinks: predictions that stop at the first layer that is sure.

python examples/early_look.py
"""

import torch

import hff


def main() -> tuple[float, float]:
    data = hff.load_data("digits")
    network = hff.create_network("mlp", data.in_shape, 10, widths=(128, 128, 128))
    method = hff.create_method("hff", network, 10)
    hff.fit(method, data, hff.Settings(epochs=10, batch_size=32))
    for layer in hff.evaluate(method, data).layers:
        print(f"layer {layer.layer}: {layer.accuracy:.1%}, at least {layer.bits:.2f} bits about the class")

    x = data.preprocessing(data.test.fetch(torch.arange(len(data.test))))
    right, layers = 0, 0
    with torch.no_grad():
        for sample, label in zip(x, data.test.labels, strict=True):
            for _, scores in method.layer_scores(sample.unsqueeze(0)):
                layers += 1
                best, second = scores[0].topk(2).values
                if best - second > 1:  # sure enough: the layers above are never computed
                    break
            right += int(scores.argmax() == label)
    accuracy, depth = right / len(x), layers / len(x)
    print(f"stopping early: accuracy {accuracy:.1%} with {depth:.2f} of 3 layers on average")
    return accuracy, depth


if __name__ == "__main__":
    main()
