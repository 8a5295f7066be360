"""How forward-forward methods write labels into inputs, and which wrong labels they contrast them with."""

from hff.labels.concatenated import Appended, ClassCodes, LabelChannel
from hff.labels.encoding import AdditiveEncoding, LabelEncoding
from hff.labels.morphology import Morphology
from hff.labels.negatives import hard_wrong_labels, wrong_labels
from hff.labels.overlay import Overlay, one_hot_encoding
from hff.labels.waves import PlaneWaves

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
