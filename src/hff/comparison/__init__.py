"""Comparisons of methods: trained with the same settings, ranked on validation, and tested once."""

from hff.bench.estimate import Estimate
from hff.comparison.compare import Comparison
from hff.comparison.entrants import Entrant
from hff.comparison.listener import ComparisonListener
from hff.comparison.rates import Trial
from hff.comparison.result import MethodResult
from hff.comparison.settings import PROTOCOL, ComparisonSettings

__all__ = [
    "PROTOCOL",
    "Comparison",
    "ComparisonListener",
    "ComparisonSettings",
    "Entrant",
    "Estimate",
    "MethodResult",
    "Trial",
]
