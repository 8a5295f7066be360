"""Comparisons of methods: trained with the same settings, ranked on validation, and tested once."""

from hff.bench.estimate import Estimate
from hff.comparison.compare import Comparison, ComparisonListener
from hff.comparison.entrants import Entrant
from hff.comparison.results import MethodResult
from hff.comparison.settings import ComparisonSettings

__all__ = ["Comparison", "ComparisonListener", "ComparisonSettings", "Entrant", "Estimate", "MethodResult"]
