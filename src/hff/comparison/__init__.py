"""All methods side by side, on equal terms: trained, ranked on validation, and tested once."""

from hff.comparison.compare import Comparison, Watcher
from hff.comparison.estimate import Estimate
from hff.comparison.rows import Row
from hff.comparison.subjects import Subject
from hff.comparison.terms import Terms

__all__ = ["Comparison", "Estimate", "Row", "Subject", "Terms", "Watcher"]
