"""Histograms and running totals of arrays on a GPU, in Numba."""

from .histogram import histogram
from .totals import running_totals

__all__ = ["histogram", "running_totals"]
