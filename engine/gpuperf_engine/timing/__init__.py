"""Predicted time: machine descriptions, occupancy, caches, the models and the estimate.

PYTEST_DONT_REWRITE
"""
