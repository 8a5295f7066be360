"""Label encodings of forward-forward methods, and wrong labels for negatives."""

from hff.modules.labels.concatenated import Appended, ClassCodes, LabelChannel
from hff.modules.labels.encoding import AdditiveEncoding, LabelEncoding
from hff.modules.labels.morphology import Morphology
from hff.modules.labels.negatives import hard_wrong_labels, wrong_labels
from hff.modules.labels.overlay import Overlay, one_hot_encoding
from hff.modules.labels.waves import PlaneWaves

__all__ = [
    "AdditiveEncoding",
    "Appended",
    "ClassCodes",
    "LabelChannel",
    "LabelEncoding",
    "Morphology",
    "Overlay",
    "PlaneWaves",
    "hard_wrong_labels",
    "one_hot_encoding",
    "wrong_labels",
]
