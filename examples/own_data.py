"""Data of your own from arrays: training, evaluation and prediction without a file.

python examples/own_data.py
"""

from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import hff


def main() -> float:
    wine = load_wine()
    names = wine.target_names[wine.target]
    x, x_test, y, y_test = train_test_split(wine.data, names, test_size=0.3, random_state=0)
    data = hff.DataSet.from_arrays(x, y, x_test=x_test, y_test=y_test, validation=0.2, name="wine")
    print(f"{len(data.train)} training, {len(data.validation)} validation, {len(data.test)} test examples")

    network = hff.create_network("mlp", data.in_shape, len(data.classes), widths=(64, 64))
    method = hff.create_method("hff", network, len(data.classes))
    hff.fit(method, data, hff.Settings(epochs=30, batch_size=16))
    accuracy = hff.evaluate(method, data).accuracy
    print(f"test accuracy {accuracy:.1%}")

    predictions = hff.predict(method, x_test[:3], preprocessing=data.preprocessing, classes=data.classes)
    for truth, prediction in zip(y_test, predictions, strict=False):
        print(f"true {truth}, predicted {prediction.label}")
    return accuracy


if __name__ == "__main__":
    main()
