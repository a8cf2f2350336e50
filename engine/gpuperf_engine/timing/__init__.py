"""Predicted time: machine descriptions, occupancy, caches, the models and the estimate."""
