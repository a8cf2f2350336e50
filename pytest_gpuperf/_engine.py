"""The one place where the plugin gets the engine, so that nothing is imported before a kernel is used. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

__all__ = ["NAME", "load", "parse"]

NAME = "gpuperf_engine"
"""The module that ``load`` imports."""


def load() -> Any:
    """The engine (which imports NumPy and llvmlite on first use)."""
    return importlib.import_module(NAME)


@lru_cache(maxsize=32)
def parse(text: str, path: str) -> Any:
    """The module of a PTX text; the same one for all tests of a process, so that it is compiled once."""
    return load().parse(text, path=path)
