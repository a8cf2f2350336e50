"""What each instruction that one thread can carry out alone does to that thread."""

from __future__ import annotations

from . import access, arithmetic, conversion, logic
from .registry import MEANINGS

__all__ = ["MEANINGS", "access", "arithmetic", "conversion", "logic"]  # importing a family fills the table
