"""Sources of PTX, one module each.

A module of this package with ``pytest_gpuperf_ptx_source`` is a plugin as others are; those that are installed are asked before it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

__all__ = ["PTX_SOURCE", "built_in"]

PTX_SOURCE = "pytest_gpuperf_ptx_source"


def built_in() -> Iterator[ModuleType]:
    """The modules that bring PTX."""
    for info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{info.name}")
        if hasattr(module, PTX_SOURCE):
            yield module
