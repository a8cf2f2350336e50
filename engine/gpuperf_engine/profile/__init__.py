"""Counting: what a run observed, turned into the profile that users read."""

from .build import build_profile
from .csv import csv_rows, csv_text
from .total import add_profiles

__all__ = ["add_profiles", "build_profile", "csv_rows", "csv_text"]
