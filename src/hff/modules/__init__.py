"""Parts that methods are made of. Each of them works in a training loop of your own.

```python
prototypes = hff.modules.Prototypes(classes=10, dim=128)
scores = hff.functional.class_scores(features, prototypes(), temperature=10.0)
loss = hff.functional.smooth_margin_loss(scores, labels, temperature=10.0)
loss.backward()
optimizer.step()
prototypes.after_step()
```
"""

from hff.modules.feedback import DenseFeedback, DirectFeedback, Feedback, FeedbackLinear, SparseFeedback
from hff.modules.heads import Head
from hff.modules.labels import (
    AdditiveEncoding,
    LabelEncoding,
    hard_wrong_labels,
    one_hot_encoding,
    wrong_labels,
)
from hff.modules.prototypes import Prototypes

__all__ = [
    "AdditiveEncoding",
    "DenseFeedback",
    "DirectFeedback",
    "Feedback",
    "FeedbackLinear",
    "Head",
    "LabelEncoding",
    "Prototypes",
    "SparseFeedback",
    "hard_wrong_labels",
    "one_hot_encoding",
    "wrong_labels",
]
