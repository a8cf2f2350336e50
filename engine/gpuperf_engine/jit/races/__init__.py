"""Races: the checks of compiled code, the memory for them, and the results."""
