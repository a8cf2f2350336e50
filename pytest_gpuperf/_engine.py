"""The one place where the plugin gets the engine, so that nothing is imported before a kernel is used. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["NAME", "load"]

NAME = "gpuperf_engine"
"""The module that ``load`` imports."""


def load() -> Any:
    """The engine (which imports NumPy and llvmlite on first use)."""
    return importlib.import_module(NAME)
