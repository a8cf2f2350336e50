"""Metrics, tolerances, verdicts and text: knows neither pytest nor the engine."""
