"""Baselines and outcomes: reading, comparing and writing."""
