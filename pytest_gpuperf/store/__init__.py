"""Baselines and outcomes: read, compared with what was written, and written."""
