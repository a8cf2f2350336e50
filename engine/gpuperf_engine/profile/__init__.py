"""Counting: the profile that users read, built from the counters of a run."""

from .build import build_profile
from .csv import csv_rows, csv_text
from .total import add_profiles

__all__ = ["add_profiles", "build_profile", "csv_rows", "csv_text"]
