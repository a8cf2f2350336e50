"""Symbolic values and the integer points for which they hold."""
