"""Races: what compiled code has to check, the memory that it needs for that, and what it found."""
